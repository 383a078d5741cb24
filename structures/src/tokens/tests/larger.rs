//! Tokens with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;

/// Hazard: double return from every side, while the holder dies.
#[test]
fn shuttle_three_returners_and_the_sweep_release_six_tokens_once() {
    model(|| {
        let log = Log::new();
        let refs = PageRefs::new(2, log.clone());
        let mut holder = refs.attach(6).expect("open");
        let tokens = [0, 1, 0, 1, 0, 1].map(|page| holder.take(page).expect("room"));
        let returns = [(); 3].map(|()| {
            let returner = holder.returner();
            spawn(move || {
                let accepted = tokens.iter().filter(|&&token| returner.give_back(token));
                accepted.count()
            })
        });
        drop(holder);
        let accepted: usize = returns.map(join).iter().sum();
        assert!(accepted <= 6, "accepted {accepted} times");
        assert_eq!((refs.uses(0), refs.uses(1)), (0, 0));
        assert_eq!(log.idle(), 2, "each page once");
    });
}

/// Hazard: slots go round through the stack of returns while their holder takes more.
#[test]
fn shuttle_tokens_returned_elsewhere_are_taken_again_and_never_twice() {
    model(|| {
        let refs = PageRefs::new(1, ());
        let mut holder = refs.attach(3).expect("open");
        let returner = holder.returner();
        let mut returned = Vec::new();
        for _ in 0..4 {
            let Ok(token) = holder.take(0) else { continue };
            let returner = returner.clone();
            returned.push(spawn(move || returner.give_back(token)));
        }
        let count = returned.len();
        let accepted = returned.into_iter().map(join).filter(|&accepted| accepted);
        assert_eq!(accepted.count(), count);
        assert_eq!((holder.held(), refs.uses(0)), (0, 0));
        let again = std::iter::from_fn(|| holder.take(0).ok()).count();
        assert_eq!(again, 3, "no slot was lost");
    });
}

/// Hazard: join after the last user; who got in is swept, who came late is refused.
#[test]
fn shuttle_a_user_beside_the_last_one_is_swept_or_refused() {
    model(|| {
        let refs = PageRefs::new(1, ());
        let first = refs.attach(1).expect("open");
        refs.close();
        let others = [(); 3].map(|()| {
            let refs = refs.clone();
            spawn(move || match refs.attach(2) {
                Some(mut holder) => holder.take(0).is_ok(),
                None => false,
            })
        });
        drop(first);
        let taken = others.map(join).iter().filter(|&&taken| taken).count();
        assert!(taken <= 3);
        assert!(refs.is_closed() && refs.attach(1).is_none());
        assert_eq!(refs.uses(0), 0);
    });
}
