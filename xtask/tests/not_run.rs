//! The last program of `cargo test`: prints once more what tests have left out on this machine.

fn main() {
    let left_out = flatpath_testkit::skipped::take();
    if !left_out.is_empty() {
        println!(
            "\n{} tests were left out, or a part of each:",
            left_out.len()
        );
        left_out.iter().for_each(|line| println!("  {line}"));
    }
}
