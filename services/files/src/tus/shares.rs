//! What an address may have of the bytes of unfinished uploads.

use std::sync::Arc;

use crate::writing::WriteOptions;

use super::tests::{Site, create_sized};

#[test]
fn an_address_leaves_bytes_of_unfinished_uploads_to_others_also_after_a_restart() {
    let mut site = Site::new(WriteOptions {
        unfinished_bytes_max: Some(160),
        ..WriteOptions::default()
    });
    let (crowd, other, third) = ("192.0.2.1", "2001:db8::1", "192.0.2.3");
    let mut all = Vec::new();
    for number in 0..10 {
        let (status, address) = create_sized(&site, crowd, (&format!("a{number}"), 40));
        assert_eq!(status, 201, "so little is there");
        all.push(address);
    }
    let mut taken = all.iter().map(|address| site.patch(address, 0, &[1; 30]));
    assert!(taken.by_ref().take(5).all(|status| status == 204), "alone");
    assert!(taken.all(|status| status == 507), "it leaves a sixteenth");
    for is_restarted in [false, true] {
        if is_restarted {
            site.ledger = Arc::default();
        }
        let has = 10 - 6 * u64::from(is_restarted);
        assert_eq!(create_sized(&site, other, ("b", has + 1)).0, 507);
        let (status, address) = create_sized(&site, other, ("b", has));
        let bytes = if is_restarted { 3 } else { 6 };
        assert_eq!(
            (status, site.patch(&address, 0, &[2; 6][..bytes])),
            (201, 204)
        );
        assert_eq!(site.patch(&all[0], 30, &[1; 1]), 507);
        assert_eq!(create_sized(&site, crowd, ("more", 1)).0, 507);
    }
    // Another host of the same subscriber, and one that finds the last part taken.
    let may = |host, bytes| create_sized(&site, host, ("c", bytes)).0 == 201;
    assert_eq!(
        (may("2001:db8::2", 1), may("2001:db8::2", 2)),
        (true, false)
    );
    assert_eq!((may(third, 1), may(third, 2)), (true, false));
    // What is given up is for all, but for the last ten.
    assert_eq!(site.ask("DELETE", &all[0], &[]).status(), 204);
    for host in [crowd, third, other] {
        assert_eq!((may(host, 21), may(host, 22)), (true, false), "{host}");
    }
    let (_, address) = create_sized(&site, third, ("d", 21));
    assert_eq!(site.patch(&address, 0, &[3; 19]), 204);
    assert!(!may(crowd, 1), "it has 120, and others 28");
    assert_eq!((may(other, 2), may(third, 2)), (true, true));
}
