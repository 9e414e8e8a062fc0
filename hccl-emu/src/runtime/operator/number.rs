//! Numbers of the element types, read from memory and written to it.

/// The value of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    /// Without a fraction.
    Whole(i128),
    /// Of a floating-point type.
    Real(f64),
}

impl Number {
    /// 1 or 0.
    pub(super) const fn truth(is_true: bool) -> Self {
        Self::Whole(is_true as i128)
    }

    /// The sum of two numbers of one kind.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => Some(Self::Whole(left + right)),
            (Self::Real(left), Self::Real(right)) => Some(Self::Real(left + right)),
            _ => None,
        }
    }
}

/// Reads an element of an `aclDataType`; `None` for a type that has no numbers here.
pub(super) fn read(data_type: i32, bytes: &[u8]) -> Option<Number> {
    macro_rules! from {
        ($kind:ty) => {
            <$kind>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match data_type {
        0 => Number::Real(from!(f32).into()),
        1 => Number::Real(from!(half::f16).into()),
        2 => Number::Whole(from!(i8).into()),
        3 => Number::Whole(from!(i32).into()),
        4 => Number::Whole(from!(u8).into()),
        6 => Number::Whole(from!(i16).into()),
        7 => Number::Whole(from!(u16).into()),
        8 => Number::Whole(from!(u32).into()),
        9 => Number::Whole(from!(i64).into()),
        10 => Number::Whole(from!(u64).into()),
        11 => Number::Real(from!(f64)),
        12 => Number::Whole((from!(u8) != 0).into()),
        27 => Number::Real(from!(half::bf16).into()),
        _ => return None,
    })
}

/// An element of an `aclDataType`. A number with a fraction loses it in a whole type, and stays at the type's limit beyond that;
/// a whole number that is too large keeps its low bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions of elements, as the comment says"
)]
pub(super) fn write(data_type: i32, number: Number) -> Option<Vec<u8>> {
    macro_rules! whole {
        ($kind:ty) => {
            match number {
                Number::Whole(value) => value as $kind,
                Number::Real(value) => value as $kind,
            }
            .to_le_bytes()
            .to_vec()
        };
    }
    let real = match number {
        Number::Whole(value) => value as f64,
        Number::Real(value) => value,
    };
    Some(match data_type {
        0 => (real as f32).to_le_bytes().to_vec(),
        1 => half::f16::from_f64(real).to_le_bytes().to_vec(),
        2 => whole!(i8),
        3 => whole!(i32),
        4 => whole!(u8),
        6 => whole!(i16),
        7 => whole!(u16),
        8 => whole!(u32),
        9 => whole!(i64),
        10 => whole!(u64),
        11 => real.to_le_bytes().to_vec(),
        12 => vec![u8::from(real != 0.0)],
        27 => half::bf16::from_f64(real).to_le_bytes().to_vec(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [i32; 13] = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 27];

    #[test]
    fn one_is_one_in_every_type() {
        for data_type in TYPES {
            let bytes = write(data_type, Number::Whole(1)).expect("a type");
            let read = read(data_type, &bytes).expect("a type");
            assert!(
                matches!(read, Number::Whole(1) | Number::Real(1.0)),
                "{data_type}"
            );
        }
        assert_eq!(read(13, &[0; 8]), None);
        assert_eq!(write(13, Number::Whole(1)), None);
    }

    #[test]
    fn conversions_cut_fractions_and_stay_within_limits() {
        assert_eq!(
            write(3, Number::Real(-2.9)),
            Some((-2_i32).to_le_bytes().to_vec())
        );
        assert_eq!(write(2, Number::Real(1000.0)), Some(vec![127]));
        assert_eq!(write(4, Number::Whole(257)), Some(vec![1]));
        assert_eq!(write(12, Number::Real(0.5)), Some(vec![1]));
        let bytes = (-5_i64).to_le_bytes();
        assert_eq!(read(9, &bytes), Some(Number::Whole(-5)));
        assert_eq!(read(9, &bytes[..4]), None);
    }
}
