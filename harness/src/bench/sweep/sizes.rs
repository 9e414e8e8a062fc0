//! The axis of sizes, as options spell it.

use muster_comm::algo::select::parse_bytes;

use super::CELLS_MAX;

/// A size: a whole number with or without one of B, K, M, G, KiB, MiB, GiB behind it; all of them
/// are powers of 1024.
///
/// # Errors
/// In words: what is allowed.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let spelt = match text.chars().last() {
        Some('k' | 'K') => format!("{}KiB", &text[..text.len() - 1]),
        Some('m' | 'M') => format!("{}MiB", &text[..text.len() - 1]),
        Some('g' | 'G') => format!("{}GiB", &text[..text.len() - 1]),
        _ => text.to_owned(),
    };
    parse_bytes(&spelt).ok_or_else(|| {
        "a size is a whole number of bytes with or without K, M, G, KiB, MiB or GiB (powers of 1024)"
            .to_owned()
    })
}

/// The sizes from `begin` to `end`, each by `factor` larger than the one before, or by `step` where
/// there is one. `end` is reached only if the steps lead there.
#[must_use]
pub fn sweep(begin: u64, end: u64, factor: u64, step: Option<u64>) -> Vec<u64> {
    let next = |size: u64| match step {
        Some(step) => size.checked_add(step),
        // From zero no factor leads away.
        None => size.checked_mul(factor).filter(|next| *next > size),
    };
    std::iter::successors(Some(begin), |size| next(*size))
        .take_while(|size| *size <= end)
        .take(CELLS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_suffixes_of_nccl_tests() {
        for (text, bytes) in [
            ("8", 8),
            ("8B", 8),
            ("64K", 65536),
            ("64k", 65536),
            ("1MiB", 1 << 20),
            ("2G", 2 << 30),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in [
            "",
            "K",
            "-1",
            "1.5M",
            "8 apples",
            "99999999999999999999",
            "1é",
            "20000000000G",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sweeps_go_by_factor_or_by_step_and_end() {
        assert_eq!(sweep(8, 64, 2, None), [8, 16, 32, 64]);
        assert_eq!(sweep(8, 100, 4, None), [8, 32]);
        assert_eq!(sweep(8, 30, 2, Some(10)), [8, 18, 28]);
        assert_eq!(sweep(0, 8, 2, None), [0]);
        assert_eq!(sweep(8, 64, 1, None), [8]);
        assert_eq!(sweep(9, 8, 2, None), [0_u64; 0]);
    }
}
