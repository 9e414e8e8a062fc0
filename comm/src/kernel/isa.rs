//! Which vector instructions a kernel may use, and what this CPU has.

use std::fmt;
use std::sync::OnceLock;

use crate::sync::{AtomicUsize, Ordering};

/// A family of vector instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// x86-64 with 256-bit vectors, and f16 conversions.
    Avx2,
    /// x86-64 with 512-bit vectors: the F, BW, DQ and VL subsets, which come together in practice.
    Avx512,
    /// The same with conversions from f32 to bf16.
    Avx512Bf16,
    /// 64-bit Arm.
    Neon,
    /// The same with conversions from f32 to bf16.
    NeonBf16,
    /// What every CPU of the target has. The reference: all others give the same results.
    Scalar,
}

impl Isa {
    /// Every family, best first.
    pub const ALL: [Self; 6] = [
        Self::Avx512Bf16,
        Self::Avx512,
        Self::Avx2,
        Self::NeonBf16,
        Self::Neon,
        Self::Scalar,
    ];

    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512_bf16",
            Self::Neon => "neon",
            Self::NeonBf16 => "neon_bf16",
            Self::Scalar => "scalar",
        }
    }

    /// Whether this CPU has these instructions and this build has kernels for them.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Avx2 => has_avx2(),
            Self::Avx512 => has_avx512(),
            Self::Avx512Bf16 => has_avx512_bf16(),
            Self::Neon => cfg!(target_arch = "aarch64"),
            Self::NeonBf16 => has_neon_bf16(),
            Self::Scalar => true,
        }
    }

    /// The families that this CPU has, best first. Never empty.
    pub fn supported() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_supported())
    }

    /// The best family that this CPU has; found out once.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Self::supported().next().unwrap_or(Self::Scalar))
    }

    /// The family that this process uses: the best one, unless another was chosen.
    pub(super) fn current() -> Self {
        // Relaxed: one number that orders nothing; all families give the same results.
        let place = CHOSEN.load(Ordering::Relaxed);
        Self::ALL.get(place).copied().unwrap_or_else(Self::best)
    }

    /// Makes this family the one that the process uses.
    pub(super) fn choose(self) {
        let place = Self::ALL.iter().position(|isa| *isa == self);
        // Relaxed: as above.
        CHOSEN.store(place.unwrap_or(usize::MAX), Ordering::Relaxed);
    }
}

/// The place in [`Isa::ALL`] of the family that was chosen.
static CHOSEN: AtomicUsize = AtomicUsize::new(usize::MAX);

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Kernels were asked for that this CPU cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this CPU cannot run {isa} kernels; it can run: {}", supported_names())]
pub struct UnsupportedIsa {
    /// The family that was asked for.
    pub isa: Isa,
}

fn supported_names() -> String {
    let names: Vec<_> = Isa::supported().map(Isa::name).collect();
    names.join(", ")
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512_bf16() -> bool {
    has_avx512() && is_x86_feature_detected!("avx512bf16")
}

#[cfg(target_arch = "aarch64")]
fn has_neon_bf16() -> bool {
    std::arch::is_aarch64_feature_detected!("bf16")
}

#[cfg(not(target_arch = "aarch64"))]
const fn has_neon_bf16() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
const fn has_avx2() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
const fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
const fn has_avx512_bf16() -> bool {
    false
}
