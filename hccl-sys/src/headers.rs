//! Which versions of the vendor's headers a value, a field or a function stands in.
//!
//! The bindings were compared with six sets of headers (`tests/data/abi_facts.json`). Everything
//! that one of them declares is marked with the sets it is in, so that a difference between two
//! versions is data and not a footnote.

use std::fmt;

/// A set of headers that the bindings were compared with, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Headers {
    /// An installed CANN 8.1.RC1.
    Cann8_1Rc1,
    /// The sources of CANN 8.5.0, the first with `libhcomm.so` and `libacl_rt.so`.
    Cann8_5_0,
    /// The sources of CANN 9.0.0.
    Cann9_0_0,
    /// The sources of CANN 9.1.0-beta.1.
    Cann9_1_0Beta1,
    /// The sources as they were in August 2026, after 9.1.0-beta.1.
    Head,
    /// The copies inside torch_npu 2.14.0, which differ from every CANN in places.
    TorchNpu2_14_0,
}

impl Headers {
    /// All of them, oldest first; torch_npu's copies last.
    pub const ALL: [Self; 6] = [
        Self::Cann8_1Rc1,
        Self::Cann8_5_0,
        Self::Cann9_0_0,
        Self::Cann9_1_0Beta1,
        Self::Head,
        Self::TorchNpu2_14_0,
    ];

    /// The name that the facts use, such as `8.5.0` or `head`.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Cann8_1Rc1 => "8.1.RC1",
            Self::Cann8_5_0 => "8.5.0",
            Self::Cann9_0_0 => "9.0.0",
            Self::Cann9_1_0Beta1 => "9.1.0-beta.1",
            Self::Head => "head",
            Self::TorchNpu2_14_0 => "torch_npu-2.14.0",
        }
    }
}

/// For people: `CANN 8.5.0`.
impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cann8_1Rc1 => "CANN 8.1.RC1",
            Self::Cann8_5_0 => "CANN 8.5.0",
            Self::Cann9_0_0 => "CANN 9.0.0",
            Self::Cann9_1_0Beta1 => "CANN 9.1.0-beta.1",
            Self::Head => "CANN after 9.1.0-beta.1",
            Self::TorchNpu2_14_0 => "torch_npu 2.14.0",
        })
    }
}

/// Some of the six sets of headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderSet(u8);

impl HeaderSet {
    /// In none: exported by a library without a public declaration.
    pub const NONE: Self = Self(0);
    /// In all six.
    pub const ALL: Self = Self(0b11_1111);
    /// From CANN 8.5.0 on, in torch_npu's copies too.
    pub const SINCE_8_5: Self = Self(0b11_1110);
    /// From CANN 9.0.0 on, in torch_npu's copies too.
    pub const SINCE_9_0: Self = Self(0b11_1100);
    /// From CANN 9.1.0-beta.1 on, in torch_npu's copies too.
    pub const SINCE_9_1: Self = Self(0b11_1000);
    /// After CANN 9.1.0-beta.1, in torch_npu's copies too.
    pub const SINCE_HEAD: Self = Self(0b11_0000);
    /// From CANN 8.5.0 on, not in torch_npu's copies.
    pub const CANN_8_5: Self = Self(0b01_1110);
    /// From CANN 9.0.0 on, not in torch_npu's copies.
    pub const CANN_9_0: Self = Self(0b01_1100);
    /// From CANN 9.1.0-beta.1 on, not in torch_npu's copies.
    pub const CANN_9_1: Self = Self(0b01_1000);
    /// After CANN 9.1.0-beta.1, not in torch_npu's copies.
    pub const HEAD: Self = Self(0b01_0000);
    /// In torch_npu's copies only.
    pub const TORCH_NPU: Self = Self(0b10_0000);
    /// From CANN 9.0.0 to 9.1.0-beta.1.
    pub const CANN_9_0_UP_TO_9_1: Self = Self(0b00_1100);
    /// In CANN 8.1.RC1 only.
    pub const CANN_8_1_ONLY: Self = Self(0b00_0001);
    /// In CANN 8.5.0 only.
    pub const CANN_8_5_ONLY: Self = Self(0b00_0010);

    /// Whether these headers are among them.
    #[must_use]
    pub const fn contains(self, headers: Headers) -> bool {
        self.0 & (1 << headers as u8) != 0
    }

    /// Those in either.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The oldest of them; torch_npu's copies only where no CANN has it.
    #[must_use]
    pub fn since(self) -> Option<Headers> {
        Headers::ALL
            .into_iter()
            .find(|headers| self.contains(*headers))
    }
}

impl fmt::Debug for HeaderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = Headers::ALL
            .into_iter()
            .filter(|headers| self.contains(*headers));
        f.debug_set().entries(members.map(Headers::key)).finish()
    }
}

/// Since when: `CANN 8.5.0`, or `no public header`.
impl fmt::Display for HeaderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since() {
            Some(headers) => headers.fmt(f),
            None => f.pad("no public header"),
        }
    }
}
