//! Bytes that look random and are the same on every machine.

/// `length` bytes that look random and depend on `seed` alone. A shorter length is a beginning of a
/// longer one.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_depends_on_its_seed_alone() {
        assert_eq!(noise(1, 1000), noise(1, 1000));
        assert_eq!(noise(1, 1000)[..10], noise(1, 10)[..]);
        assert_ne!(noise(1, 1000), noise(2, 1000));
        let distinct: std::collections::HashSet<u8> = noise(3, 10_000).into_iter().collect();
        assert_eq!(distinct.len(), 256);
    }
}
