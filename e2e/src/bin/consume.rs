//! A consumer that is there to be killed: `consume SOCKET KEEP` says `attached`, then receives
//! until it ends with the server, keeps up to KEEP messages, and panics when one has changed.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use flatpath_consumer::Consumer;
use flatpath_testkit::noise;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(Ok(keep))) = (
        arguments.next(),
        arguments.next().map(|keep| keep.parse::<usize>()),
    ) else {
        eprintln!("consume SOCKET KEEP");
        return ExitCode::from(2);
    };
    match run(&socket, keep) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("consume: {why}");
            ExitCode::from(1)
        }
    }
}

fn run(socket: &str, keep: usize) -> Result<(), flatpath_consumer::Error> {
    let mut consumer = Consumer::attach(socket)?;
    println!("attached");
    let mut kept = Vec::new();
    while let Some(message) = consumer.receive()? {
        let bytes = message.to_vec();
        let (seed, rest) = bytes.split_first_chunk::<8>().expect("a seed");
        let expected = noise(u64::from_be_bytes(*seed), rest.len());
        assert!(rest == expected, "a message has changed");
        kept.push(message);
        if kept.len() > keep {
            kept.remove(kept.len() / 2);
        }
    }
    Ok(())
}
