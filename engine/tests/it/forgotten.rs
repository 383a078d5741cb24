//! A protocol that forgets the phase between messages closes clients that only wait: the log says
//! so, once. In processes of their own, whose logger is theirs.

use std::time::Duration;

use flatpath::simulation::{Client, ClientState, Conditions, SimulatedServer};
use flatpath::{Context, ListenerOptions, Phase, Protocol, Received};
use flatpath_testkit::in_child;
use flatpath_testkit::logged::Logged;
use log::LevelFilter;

/// Repeats whole lines.
struct Lines {
    name: &'static str,
    restarts: bool,
}

impl Protocol for Lines {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named(self.name)
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let end = input.iter().rposition(|byte| *byte == b'\n');
        let consumed = end.map_or(0, |end| end + 1);
        context.write(&input[..consumed]).expect("room");
        if self.restarts && consumed > 0 {
            context.restart_phase(Phase::Idle);
        }
        Received::NeedMore { consumed }
    }
}

/// How often the log has the hint for this protocol, after two clients that send this have been
/// closed.
fn hints(name: &'static str, restarts: bool, words: &[u8]) -> usize {
    let logged = Logged::begin(LevelFilter::Warn);
    let conditions = Conditions::calm(1);
    let times = [
        conditions.limits.head_timeout,
        conditions.limits.idle_timeout,
    ];
    let mut server = SimulatedServer::new(conditions, Lines { name, restarts });
    let clients: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    let pass = |server: &mut SimulatedServer| (0..20).for_each(|_| server.turn());
    pass(&mut server);
    for client in &clients {
        client.write(words);
    }
    pass(&mut server);
    for time in times {
        server.advance(time + Duration::from_secs(1));
        pass(&mut server);
    }
    for client in &clients {
        client.read();
        assert_ne!(client.state(), ClientState::Open, "{name}");
    }
    let begin = format!("{name}: the deadline for a message");
    logged.count(|line| line.starts_with(&begin))
}

#[test]
fn a_forgotten_phase_is_reported_once() {
    if !in_child(concat!(
        module_path!(),
        "::a_forgotten_phase_is_reported_once"
    )) {
        return;
    }
    assert_eq!(hints("forgets", false, b"a line\n"), 1);
}

#[test]
fn late_and_silent_clients_are_no_reason_to_report() {
    if !in_child(concat!(
        module_path!(),
        "::late_and_silent_clients_are_no_reason_to_report"
    )) {
        return;
    }
    assert_eq!(hints("restarts", true, b"a line\n"), 0);
    assert_eq!(hints("half", false, b"half a li"), 0);
    assert_eq!(hints("more", false, b"a line\nhalf a li"), 0);
    assert_eq!(hints("silent", false, b""), 0);
}
