//! A terminal that is drawn on: taken, given back as it was.
//!
//! A screen of lines needs a handful of sequences that every terminal of today knows (ECMA-48 and
//! xterm's), so no library draws here.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The other screen, no cursor, and no line is wrapped.
const TAKE: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const GIVE_BACK: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Where a terminal says nothing of its size.
const SIZE_USUAL: Size = Size {
    rows: 24,
    columns: 80,
};

/// In characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// Standard output, which is a terminal, and the keys of standard input if that is one.
pub(super) struct Terminal {
    modes_before: Option<Termios>,
    is_over: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes it until it is dropped. SIGINT, SIGTERM and SIGHUP end the drawing instead of the
    /// process from now on.
    pub(super) fn take() -> io::Result<Terminal> {
        let is_over = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&is_over))?;
        }
        let input = io::stdin();
        let modes_before = match input.is_terminal() {
            true => Some(tcgetattr(&input)?),
            false => None,
        };
        if let Some(before) = &modes_before {
            // Keys come one by one and are not shown; one that would stop the process while the
            // terminal is taken does nothing.
            let mut modes = before.clone();
            modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(&input, OptionalActions::Now, &modes)?;
        }
        let terminal = Terminal {
            modes_before,
            is_over,
        };
        write(TAKE)?;
        Ok(terminal)
    }

    /// Its size now.
    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Size {
                rows: size.ws_row.into(),
                columns: size.ws_col.into(),
            },
            _ => SIZE_USUAL,
        }
    }

    /// Draws as much of a text as there is room for, over what was there: nothing flickers.
    pub(super) fn draw(&mut self, text: &str, size: Size) -> io::Result<()> {
        write(&drawing(text, size))
    }

    /// Waits for so long, or until a key or a signal says that it is to end.
    pub(super) fn is_to_end(&mut self, wait: Duration) -> io::Result<bool> {
        if self.modes_before.is_none() {
            thread::sleep(wait);
            return Ok(self.is_over.load(Ordering::Relaxed));
        }
        let input = io::stdin();
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        let mut watched = [PollFd::new(&input, PollFlags::IN)];
        let has_keys = match poll(&mut watched, Some(&wait)) {
            Ok(count) => count > 0,
            Err(Errno::INTR) => false,
            Err(cause) => return Err(cause.into()),
        };
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if !has_keys {
            return Ok(false);
        }
        let mut keys = [0; 64];
        let count = rustix::io::read(&input, &mut keys)?;
        // Nothing: the terminal is gone.
        Ok(count == 0 || keys[..count].iter().any(|key| b"qQ\x03\x04".contains(key)))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = write(GIVE_BACK);
        if let Some(modes) = &self.modes_before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, modes);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// The last character of a line that was too long for the terminal.
const CUT: char = '…';

fn drawing(text: &str, size: Size) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = lines.len().min(size.rows);
    let mut last = String::new();
    if shown < lines.len() {
        shown = shown.saturating_sub(1);
        last = format!("... {} more lines", lines.len() - shown);
    }
    let lines = lines[..shown].iter().copied();
    let lines = lines.chain((!last.is_empty()).then_some(last.as_str()));
    let lines = lines.map(|line| {
        let mut shown: String = line.chars().take(size.columns).collect();
        if line.chars().nth(size.columns).is_some() {
            shown.pop();
            shown.push(CUT);
        }
        format!("{shown}\x1b[K")
    });
    // No line feed after the last one: it would scroll.
    let lines: Vec<String> = lines.collect();
    format!("\x1b[H{}\x1b[J", lines.join("\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_cut_and_told() {
        let size = |rows, columns| Size { rows, columns };
        let text = "one\ntwo\nthree\n";
        let all = "\x1b[Hone\x1b[K\r\ntwo\x1b[K\r\nthree\x1b[K\x1b[J";
        assert_eq!(drawing(text, size(3, 80)), all);
        let cut = "\x1b[Hone\x1b[K\r\n... 2 …\x1b[K\x1b[J";
        assert_eq!(drawing(text, size(2, 7)), cut);
        assert_eq!(drawing(text, size(1, 2)), "\x1b[H.…\x1b[K\x1b[J");
    }
}
