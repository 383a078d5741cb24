//! The stack with more threads than loom can finish; shuttle tries random schedules of it.

use super::*;
use crate::sync::spawn;
use crate::testing::{join, model};

#[test]
fn shuttle_four_threads_pop_and_push_back_in_another_order_and_lose_nothing() {
    model(|| {
        let marked = Marked::new(6, &[0, 1, 2, 3, 4, 5]);
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let marked = Arc::clone(&marked);
                spawn(move || {
                    for _ in 0..3 {
                        let held: Vec<u32> = if number == 0 {
                            marked.take_all()
                        } else {
                            [marked.pop(), marked.pop()].into_iter().flatten().collect()
                        };
                        for index in held {
                            marked.push(index);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(join);
        let mut left = marked.take_all();
        left.sort_unstable();
        assert_eq!(left, [0, 1, 2, 3, 4, 5]);
    });
}

/// The idle list of a worker pool: each thread removes only itself, and only while it is on top.
#[test]
fn shuttle_of_four_owners_each_removes_only_itself() {
    model(|| {
        let marked = Marked::new(4, &[]);
        let owners: Vec<_> = (0..4)
            .map(|index| {
                let marked = Arc::clone(&marked);
                spawn(move || {
                    let mut is_listed = false;
                    for _ in 0..3 {
                        if !is_listed {
                            marked.push(index);
                        }
                        is_listed = !marked.stack.pop_if_head(index);
                        if !is_listed {
                            marked.received(index);
                        }
                    }
                    is_listed
                })
            })
            .collect();
        let buried: Vec<bool> = owners.into_iter().map(join).collect();
        let left = buried.iter().filter(|&&is_buried| is_buried).count();
        assert_eq!(marked.take_all().len(), left);
    });
}
