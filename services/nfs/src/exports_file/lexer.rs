//! Words of a file of exports: quotes, octal numbers, comments, and lines that continue.
//!
//! As nfs-utils reads them: a backslash at the end of a line is a blank, also in a comment, which
//! goes on then. A `#` begins a comment where a word could begin. A quote may be anywhere in a
//! word. A backslash with three octal digits is a byte, and any other one is itself.

use super::BadExports;

/// A word, and where each of its bytes is.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) bytes: Vec<u8>,
    /// Columns of the bytes, from 1.
    columns: Vec<usize>,
    line: usize,
}

#[derive(Debug)]
pub(super) enum Token {
    /// Not empty.
    Word(Word),
    EndOfLine,
    End,
}

impl Word {
    /// A word as it is, that is in no line.
    pub(super) fn of(text: &str) -> Word {
        Word {
            bytes: text.as_bytes().to_vec(),
            columns: (1..=text.len()).collect(),
            line: 0,
        }
    }

    /// Without what stands from byte `end` on.
    pub(super) fn until(&self, end: usize) -> Word {
        Word {
            bytes: self.bytes[..end].to_vec(),
            columns: self.columns[..end].to_vec(),
            line: self.line,
        }
    }

    /// `LINE:COLUMN:` of a byte; nothing of a word that is in no line.
    pub(super) fn place(&self, byte: usize) -> String {
        match self.line {
            0 => String::new(),
            line => format!("{line}:{}:", self.column(byte)),
        }
    }

    fn column(&self, byte: usize) -> usize {
        let last = self.columns.last().map_or(1, |last| last + 1);
        self.columns.get(byte).copied().unwrap_or(last)
    }

    pub(super) fn error(&self, byte: usize, why: impl Into<String>) -> BadExports {
        BadExports {
            line: self.line,
            column: self.column(byte),
            why: why.into(),
        }
    }
}

pub(super) struct Lexer<'a> {
    rest: &'a [u8],
    line: usize,
    column: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8]) -> Lexer<'a> {
        Lexer {
            rest: text,
            line: 1,
            column: 1,
        }
    }

    fn error(&self, why: &str) -> BadExports {
        BadExports {
            line: self.line,
            column: self.column,
            why: why.into(),
        }
    }

    /// Takes a byte, if there is one.
    fn take(&mut self) {
        let Some((byte, rest)) = self.rest.split_first() else {
            return;
        };
        self.rest = rest;
        match byte {
            b'\n' => (self.line, self.column) = (self.line + 1, 1),
            // A character of UTF-8 is one column.
            0x80..=0xbf => {}
            _ => self.column += 1,
        }
    }

    /// Takes the end of a line that continues.
    fn take_continuation(&mut self) -> bool {
        let continues = self.rest.starts_with(b"\\\n");
        if continues {
            self.take();
            self.take();
        }
        continues
    }

    pub(super) fn next(&mut self) -> Result<Token, BadExports> {
        loop {
            if self.take_continuation() {
                continue;
            }
            match self.rest.first() {
                None => return Ok(Token::End),
                Some(b'\n') => {
                    self.take();
                    return Ok(Token::EndOfLine);
                }
                Some(b'#') => self.skip_comment(),
                Some(blank) if is_blank(*blank) => {
                    self.take();
                }
                Some(_) => {
                    let word = self.word()?;
                    if !word.bytes.is_empty() {
                        return Ok(Token::Word(word));
                    }
                    return Err(self.error("there is nothing in these quotes"));
                }
            }
        }
    }

    fn skip_comment(&mut self) {
        while !matches!(self.rest.first(), None | Some(b'\n')) {
            if !self.take_continuation() {
                self.take();
            }
        }
    }

    fn word(&mut self) -> Result<Word, BadExports> {
        let mut word = Word {
            bytes: Vec::new(),
            columns: Vec::new(),
            line: self.line,
        };
        let mut is_quoted = false;
        loop {
            let column = self.column;
            let (byte, length) = match self.rest.first() {
                None | Some(b'\n') if is_quoted => {
                    return Err(self.error("a quote is not closed in its line"));
                }
                None | Some(b'\n') => return Ok(word),
                Some(byte) if is_blank(*byte) && !is_quoted => return Ok(word),
                Some(b'\\') if self.rest.starts_with(b"\\\n") => match is_quoted {
                    true => return Err(self.error("a quote is not closed in its line")),
                    false => return Ok(word),
                },
                Some(b'\\') => self.octal().map_or((b'\\', 1), |byte| (byte, 4)),
                Some(byte) => (*byte, 1),
            };
            if byte == 0 {
                return Err(self.error("no path or name has a zero byte"));
            }
            let is_quote = self.rest.first() == Some(&b'"');
            for _ in 0..length {
                self.take();
            }
            if is_quote {
                is_quoted = !is_quoted;
                continue;
            }
            word.bytes.push(byte);
            word.columns.push(column);
        }
    }

    /// The byte that a backslash with three octal digits stands for.
    fn octal(&self) -> Option<u8> {
        let digits = self.rest.get(1..4)?;
        let is_octal = |digit: &u8| (b'0'..=b'7').contains(digit);
        if digits[0] > b'3' || !digits.iter().all(is_octal) {
            return None;
        }
        let value = |value, digit: &u8| value << 3 | (digit - b'0');
        Some(digits.iter().fold(0, value))
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0b' | b'\x0c')
}
