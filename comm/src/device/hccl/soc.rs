//! Products by the names of their chips.

use std::fmt;

/// A family of products, which decides what collectives and types there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// Atlas A2: Ascend910B1 to B4.
    A2,
    /// Atlas A3: Ascend910_93…
    A3,
    /// Atlas 300I Duo: Ascend310P.
    Ascend310P,
    /// The first training cards: Ascend910A, 910ProB, …
    Ascend910,
    /// Ascend950.
    Ascend950,
    /// One that no table here knows: nothing is refused beforehand.
    Unknown,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::A2 => "Atlas A2",
            Self::A3 => "Atlas A3",
            Self::Ascend310P => "Atlas 300I Duo",
            Self::Ascend910 => "Atlas training (910)",
            Self::Ascend950 => "Ascend 950",
            Self::Unknown => "unknown product",
        })
    }
}

/// A chip: its name as the runtime gives it, and its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soc {
    /// `Ascend910B2`.
    pub name: String,
    /// What it belongs to.
    pub product: Product,
}

impl Soc {
    /// The chip of this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let product = match name.strip_prefix("Ascend") {
            Some(rest) if rest.starts_with("910_93") => Product::A3,
            Some(rest) if has_digit_after(rest, "910B") => Product::A2,
            Some(rest) if rest.starts_with("910") => Product::Ascend910,
            Some(rest) if rest.starts_with("310P") => Product::Ascend310P,
            Some(rest) if rest.starts_with("950") => Product::Ascend950,
            Some(_) | None => Product::Unknown,
        };
        Self {
            name: name.to_owned(),
            product,
        }
    }
}

impl fmt::Display for Soc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.product)
    }
}

/// The A2 series has a digit after its B; a 910B without one is of the first generation.
fn has_digit_after(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_belong_to_their_products() {
        for (name, product) in [
            ("Ascend910B2", Product::A2),
            ("Ascend910B2C", Product::A2),
            ("Ascend910B", Product::Ascend910),
            ("Ascend910ProB", Product::Ascend910),
            ("Ascend910A", Product::Ascend910),
            ("Ascend910_9391", Product::A3),
            ("Ascend310P3", Product::Ascend310P),
            ("Ascend950DT_9581", Product::Ascend950),
            ("Ascend310B1", Product::Unknown),
            ("", Product::Unknown),
        ] {
            assert_eq!(Soc::named(name).product, product, "{name}");
        }
    }
}
