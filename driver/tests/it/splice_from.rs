//! Moving what a socket has received to another one through a pipe, on every kind of driver.

on_every_driver! {
    #[test] fn what_was_pulled_goes_to_another_socket;
    #[test] fn what_was_pulled_goes_to_a_file;
    #[test] fn a_stream_that_is_lent_fills_the_pipe_until_it_is_taken_back;
    #[test] fn pulling_waits_for_nothing_and_leaves_what_is_too_little;
    #[test] fn a_receive_tells_the_end_behind_a_pull;
}

mod cases {
    use std::fs::OpenOptions;
    use std::io::{Read as _, Seek as _, SeekFrom};
    use std::net::Shutdown;

    use flatpath_driver::{
        AfterSend, Driver, OperationMode, Outcome, Piped, Pipes, Segment, SendList, Socket,
    };

    use crate::rig::{Make, Rig, pattern, read_exactly, small, write};

    fn spliced<D: Driver>(rig: &mut Rig<D>, socket: Socket, pipes: &Pipes, min: usize) -> Piped {
        let mut piped = None;
        rig.until("something has come", |rig| {
            piped = rig.driver.splice_from(socket, pipes, min..=100_000);
            piped.is_some()
        });
        piped.expect("just seen")
    }

    pub(crate) fn what_was_pulled_goes_to_another_socket<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let ((mut from, source), (mut to, target)) = (rig.pair(), rig.pair());
        let (pipes, content) = (Pipes::new(2), pattern(300_000));
        write(&mut from, &content);
        let mut moved = 0;
        while moved < content.len() {
            let piped = spliced(&mut rig, source, &pipes, 1);
            let count = piped.len();
            assert!((1..=100_000).contains(&count), "{count}");
            let mut list = SendList::new();
            list.push(Segment::Piped(piped)).expect("room");
            rig.driver.send(target, 5, &mut list, AfterSend::KeepOpen);
            let reader = std::thread::spawn(move || {
                let bytes = read_exactly(&mut to, count);
                (to, bytes)
            });
            assert_eq!(rig.sent(5), (count, false));
            let bytes;
            (to, bytes) = reader.join().expect("all of it");
            assert!(bytes == content[moved..moved + count], "from {moved} on");
            moved += count;
        }
        assert_eq!(pipes.open(), 1, "the same one each time");
        rig.driver.close(source);
        rig.driver.close(target);
        rig.turn();
    }

    pub(crate) fn what_was_pulled_goes_to_a_file<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let (pipes, content) = (Pipes::new(1), pattern(250_000));
        let directory = tempfile::tempdir().expect("a directory");
        for (name, appends) in [("moved", false), ("copied", true)] {
            let path = directory.path().join(name);
            std::fs::write(&path, b"before").expect("written");
            // No file that is open for appending can be spliced to.
            let mut options = OpenOptions::new();
            let mut file = options.write(true).append(appends).open(&path);
            let file = file.as_mut().expect("open");
            file.seek(SeekFrom::End(0)).expect("its end");
            write(&mut client, &content);
            let mut left = content.len();
            while left > 0 {
                let mut piped = spliced(&mut rig, socket, &pipes, 1);
                left -= piped.len();
                piped.write_to(&*file).expect("written");
                assert!(piped.is_empty());
            }
            let written = std::fs::read(&path).expect("readable");
            assert!(written == [b"before", &content[..]].concat(), "{name}");
        }
        write(&mut client, &content);
        let full = OpenOptions::new().write(true).open("/dev/full");
        let mut piped = spliced(&mut rig, socket, &pipes, 1);
        let refused = piped.write_to(full.expect("it is there"));
        let errno = refused.expect_err("there is no space").raw_os_error();
        assert_eq!(errno, Some(rustix::io::Errno::NOSPC.raw_os_error()));
        drop(piped);
        assert_eq!(
            pipes.open(),
            0,
            "what was not written is gone with its pipe"
        );
        rig.driver.abort(socket);
        rig.turn();
    }

    pub(crate) fn a_stream_that_is_lent_fills_the_pipe_until_it_is_taken_back<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let (pipes, content) = (Pipes::new(1), pattern(60_000));
        let mut file = tempfile::tempfile().expect("a file");
        write(&mut client, &content[..20_000]);
        let mut piped = spliced(&mut rig, socket, &pipes, 1);
        let mut moved = piped.len();
        assert!(!piped.refill(1..=9), "nothing is lent");
        let before = rig.driver.statistics().system_calls;
        let lent = rig.driver.lend(socket).expect("a descriptor");
        let calls = rig.driver.statistics().system_calls - before;
        assert!(calls >= 1, "the duplicate of the descriptor is counted");
        piped.lend(lent.clone());
        assert!(!piped.refill(1..=9) && piped.len() == moved, "it is full");
        write(&mut client, &content[20_000..40_000]);
        while moved < 40_000 {
            piped.write_to(&file).expect("written");
            rig.until("more has come", |_| piped.refill(1..=7_000));
            assert!((1..=7_000).contains(&piped.len()));
            moved += piped.len();
        }
        piped.write_to(&file).expect("written");
        write(&mut client, &content[40_000..]);
        assert!(!piped.refill(30_000..=40_000), "that much never comes");
        lent.take_back();
        let mut stored = Vec::new();
        file.rewind().expect("a file");
        file.read_to_end(&mut stored).expect("a file");
        while stored.len() < content.len() {
            assert!(!piped.refill(1..=9), "it is taken back");
            rig.driver.receive(socket, 5, OperationMode::Single, 0);
            let next = rig.next(5);
            stored.extend(rig.received(next));
        }
        assert!(stored == content, "in order");
        // Nothing keeps the connection open.
        rig.driver.close(socket);
        rig.turn();
        assert_eq!(client.read(&mut [0]).expect("an end"), 0);
    }

    pub(crate) fn pulling_waits_for_nothing_and_leaves_what_is_too_little<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let pipes = Pipes::new(1);
        assert!(rig.driver.splice_from(socket, &pipes, 1..=9).is_none());
        write(&mut client, b"little");
        rig.driver.receive(socket, 5, OperationMode::Single, 0);
        let first = rig.next(5);
        let mut heard = rig.received(first);
        write(&mut client, &[b'+'; 999]);
        while heard.len() < 6 + 999 {
            assert!(
                rig.driver
                    .splice_from(socket, &pipes, 1000..=2000)
                    .is_none()
            );
            rig.driver.receive(socket, 5, OperationMode::Single, 0);
            let next = rig.next(5);
            heard.extend(rig.received(next));
        }
        assert_eq!(&heard[..7], b"little+");
        assert_eq!(pipes.open(), 0, "none was needed");
        write(&mut client, &[7; 1000]);
        let piped = spliced(&mut rig, socket, &pipes, 1000);
        assert!(piped.into_bytes().expect("readable") == [7; 1000][..]);
        let ourselves = std::fs::File::open("/proc/self/exe").expect("a file");
        let held = pipes.splice_file(ourselves, 0, 9, 0).expect("readable");
        assert!(held.is_some(), "the only pipe");
        write(&mut client, &[8; 1000]);
        assert!(
            rig.driver.splice_from(socket, &pipes, 1..=9).is_none(),
            "no pipe"
        );
        drop(held);
        rig.driver.abort(socket);
        rig.turn();
    }

    pub(crate) fn a_receive_tells_the_end_behind_a_pull<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let pipes = Pipes::new(1);
        let mut left = 1000;
        write(&mut client, &pattern(left));
        client.shutdown(Shutdown::Write).expect("open");
        while left > 0 {
            left -= spliced(&mut rig, socket, &pipes, 1)
                .into_bytes()
                .expect("readable")
                .len();
        }
        assert!(rig.driver.splice_from(socket, &pipes, 1..=9).is_none() || left > 0);
        let last = loop {
            rig.driver.receive(socket, 5, OperationMode::Single, 0);
            let completion = rig.next(5);
            if let Outcome::Received(_) = completion.outcome {
                left -= rig.received(completion).len();
                continue;
            }
            break completion;
        };
        assert!(matches!(last.outcome, Outcome::EndOfStream), "{last:?}");
        assert_eq!(left, 0);
        rig.driver.close(socket);
        rig.turn();
    }
}
