//! Pages that the caller writes: none is with the kernel, and each is retained and comes back as
//! one that was received into.

on_every_driver! {
    #[test] fn each_page_is_taken_once_written_retained_and_comes_back;
    #[test] fn receives_go_on_beside_pages_that_are_written;
}

mod cases {
    use std::sync::Arc;

    use flatpath_driver::{
        Driver, DriverConfig, Filling, Fragment, OperationMode, Outcome, Piece, Quota, QuotaWaker,
        RegionConfig, SmallReceives,
    };

    use crate::rig::{Make, Rig, small, write};

    const PAGES: u32 = 16;
    const RESERVED: u32 = 4;
    const PAGE_BYTES: u32 = 4096;

    struct Nobody;

    impl QuotaWaker for Nobody {
        fn wake(&self, _number: u64) {}
    }

    fn config() -> DriverConfig {
        DriverConfig {
            regions: vec![RegionConfig {
                pages: PAGES,
                page_bytes: PAGE_BYTES,
                reserve_pages: RESERVED,
                small_receives: SmallReceives::SharePages,
                filling: Filling::Written,
                ..RegionConfig::default()
            }],
            ..small()
        }
    }

    /// A page that is full of a byte.
    fn written<D: Driver>(rig: &mut Rig<D>, byte: u8) -> Option<Piece> {
        let mut page = rig.driver.take_page(1, PAGE_BYTES as usize)?;
        assert_eq!((page.region_id(), page.len()), (1, PAGE_BYTES as usize));
        rig.driver.bytes_mut(&mut page).fill(byte);
        Some(page)
    }

    pub(crate) fn each_page_is_taken_once_written_retained_and_comes_back<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let quota = Quota::new(1, Arc::new(Nobody));
        for round in 0..3_u8 {
            assert_eq!(rig.driver.free(1), PAGES);
            let mut pages = Vec::new();
            while let Some(page) = written(&mut rig, round ^ pages.len() as u8) {
                pages.push(page);
            }
            assert_eq!((pages.len(), rig.driver.free(1)), (PAGES as usize, 0));
            let mut kept: Vec<Fragment> = Vec::new();
            for (number, page) in pages.into_iter().enumerate() {
                let byte = round ^ number as u8;
                assert!(rig.driver.bytes(&page).iter().all(|it| *it == byte));
                let region = rig.driver.region(1).clone();
                kept.extend(region.retain(&page, 1..100, &quota));
                rig.driver.recycle(page);
            }
            assert_eq!(kept.len(), (PAGES - RESERVED) as usize);
            assert_eq!(rig.driver.free(1), RESERVED);
            // Another page is none of those.
            let other = written(&mut rig, 0xff).expect("one in reserve");
            for (number, fragment) in kept.iter().enumerate() {
                assert_eq!(fragment[..], [round ^ number as u8; 99]);
            }
            rig.driver.recycle(other);
            drop(kept);
            rig.turn();
        }
        assert_eq!(rig.driver.free(1), PAGES);
    }

    pub(crate) fn receives_go_on_beside_pages_that_are_written<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let pages: Vec<Piece> = (0..PAGES)
            .map(|byte| written(&mut rig, byte as u8).expect("a page"))
            .collect();
        write(&mut client, b"words");
        rig.driver.receive(socket, 7, OperationMode::Single, 0);
        match rig.next(7).outcome {
            Outcome::Received(piece) => {
                assert_eq!(rig.driver.bytes(&piece), b"words");
                rig.driver.recycle(piece);
            }
            other => panic!("no bytes but {other:?}"),
        }
        pages.into_iter().for_each(|page| rig.driver.recycle(page));
        assert_eq!(rig.driver.free(1), PAGES);
    }
}
