//! How an enum of the vendor becomes a Rust type.
//!
//! A C enum may hold any number, and later versions add values. So each becomes a transparent
//! number that keeps what it was given, with the names of all versions beside it.

use crate::headers::HeaderSet;

/// A name of the vendor's headers with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, verbatim.
    pub name: &'static str,
    /// The number.
    pub value: i64,
    /// The headers in which the name has this number.
    pub headers: HeaderSet,
}

/// The first of these names that has the number.
pub(crate) const fn name_of(values: &[Named], number: i64) -> Option<&'static str> {
    let mut at = 0;
    while at < values.len() {
        if values[at].value == number {
            return Some(values[at].name);
        }
        at += 1;
    }
    None
}

/// Declares a C enum: a transparent `i32` with one constant a name. Names whose number changed
/// between versions, such as `..._RESERVED`, stand under `moving`: in the table, without constant.
macro_rules! c_enum {
    (
        $(#[$meta:meta])*
        $type:ident {
            $($name:ident = $number:literal, $headers:ident;)*
        }
        $(moving { $($moving:ident = $place:literal, $where:expr;)* })?
    ) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub i32);

        impl $type {
            $(
                #[doc = concat!("`", stringify!($name), "`, ", stringify!($number), ".")]
                pub const $name: Self = Self($number);
            )*

            /// All names of all versions with their numbers. One number may have several names.
            pub const VALUES: &'static [$crate::types::Named] = &[
                $($crate::types::Named {
                    name: stringify!($name),
                    value: $number,
                    headers: $crate::headers::HeaderSet::$headers,
                },)*
                $($($crate::types::Named {
                    name: stringify!($moving),
                    value: $place,
                    headers: $where,
                },)*)?
            ];

            /// The vendor's name of this value, if any version has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $crate::types::newtype::name_of(Self::VALUES, self.0 as i64)
            }
        }

        /// Name and number, or the number alone where no version names it.
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{} {}", stringify!($type), self.0),
                }
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Declares constants and a table of them.
macro_rules! c_constants {
    (
        $(#[$meta:meta])*
        $table:ident {
            $($(#[$doc:meta])* $name:ident: $type:ty = $number:literal, $headers:ident;)*
        }
        $(moving { $($moving:ident = $place:literal, $where:expr;)* })?
    ) => {
        $($(#[$doc])* pub const $name: $type = $number;)*

        $(#[$meta])*
        pub const $table: &[$crate::types::Named] = &[
            $($crate::types::Named {
                name: stringify!($name),
                value: $number,
                headers: $crate::headers::HeaderSet::$headers,
            },)*
            $($($crate::types::Named {
                name: stringify!($moving),
                value: $place,
                headers: $where,
            },)*)?
        ];
    };
}

pub(crate) use {c_constants, c_enum};
