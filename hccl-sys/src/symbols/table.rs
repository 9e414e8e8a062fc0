//! The table of functions: one row each, from which the struct of addresses, the accessors and
//! the prototypes for reports and tests are all made.

use std::fmt;
use std::path::PathBuf;

use crate::headers::HeaderSet;
use crate::search::Library;

/// Which half of the vendor's libraries a function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The Ascend runtime.
    Acl,
    /// HCCL.
    Hccl,
}

impl Family {
    /// The libraries that may have its functions, in the order in which they are asked. Which of
    /// the two has a function depends on the version of CANN.
    #[must_use]
    pub const fn libraries(self) -> [Library; 2] {
        match self {
            Self::Acl => [Library::AscendCl, Library::AclRt],
            Self::Hccl => [Library::Hccl, Library::Hcomm],
        }
    }
}

/// Arguments and result of a function, as written in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prototype {
    /// Name and Rust type of each argument.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Rust type of the result.
    pub returns: &'static str,
}

/// One function of the vendor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Where it belongs.
    pub family: Family,
    /// The headers that declare it.
    pub headers: HeaderSet,
    /// Its signature; `None` for those that are looked for and never called.
    pub prototype: Option<Prototype>,
}

impl Row {
    /// Result and arguments in C, such as `HcclResult HcclGetRankId(HcclComm comm, uint32_t *rank)`.
    #[must_use]
    pub fn c_prototype(&self) -> Option<String> {
        let prototype = self.prototype?;
        let arguments: Vec<String> = prototype
            .arguments
            .iter()
            .map(|(name, kind)| join(&c_type(kind), name))
            .collect();
        let result = c_type(prototype.returns);
        let head = join(&result, self.name);
        Some(format!("{head}({})", arguments.join(", ")))
    }
}

/// `uint32_t *` and `rank` to `uint32_t *rank`.
fn join(kind: &str, name: &str) -> String {
    if kind.ends_with('*') {
        format!("{kind}{name}")
    } else {
        format!("{kind} {name}")
    }
}

/// The C spelling of a type of the table, such as `const void *` of `*const c_void`.
#[must_use]
pub fn c_type(rust: &str) -> String {
    if let Some(target) = rust.strip_prefix("*mut ") {
        return pointer(&c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*const ") {
        return pointer(&format!("const {}", c_type(target)));
    }
    match rust {
        "bool" => "bool".to_owned(),
        "c_char" => "char".to_owned(),
        "c_int" => "int".to_owned(),
        "c_void" => "void".to_owned(),
        "f32" => "float".to_owned(),
        "i32" => "int32_t".to_owned(),
        "i64" => "int64_t".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "usize" => "size_t".to_owned(),
        // The runtime's types begin with a small letter in C.
        named => named
            .strip_prefix("Acl")
            .map_or_else(|| named.to_owned(), |rest| format!("acl{rest}")),
    }
}

fn pointer(target: &str) -> String {
    if target.ends_with('*') {
        format!("{target}*")
    } else {
        format!("{target} *")
    }
}

/// A function of the vendor that no loaded library has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSymbol {
    /// Its name.
    pub name: &'static str,
    /// The headers that declare it: from which version on it can be expected.
    pub since: HeaderSet,
    /// The files that were asked. None, if no library of its family loaded.
    pub looked_in: Vec<PathBuf>,
}

/// `HcclGroupStart (since CANN 9.0.0) is not in /x/libhccl.so`.
impl fmt::Display for MissingSymbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since.since() {
            Some(since) => write!(f, "{} (since {since}) ", self.name)?,
            None => write!(f, "{} (in no public header) ", self.name)?,
        }
        if self.looked_in.is_empty() {
            return f.write_str("is missing: no library that could have it is loaded");
        }
        let files: Vec<String> = self
            .looked_in
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        write!(f, "is not in {}", files.join(" or "))
    }
}

impl std::error::Error for MissingSymbol {}

/// Makes a struct of addresses from a table of functions.
macro_rules! symbol_table {
    (
        $(#[$meta:meta])*
        $struct:ident, $family:expr;

        $($name:ident($($argument:ident: $kind:ty),* $(,)?) -> $returns:ty, $headers:ident;)*
    ) => {
        $(#[$meta])*
        ///
        /// Each method gives the address of the function of its name, or says where it was looked
        /// for in vain. Calling it obeys the vendor's documentation: pointers valid for the whole
        /// call, buffers of an operation until its stream is synchronised, the right device
        /// current in the calling thread.
        #[derive(Debug)]
        #[expect(non_snake_case, reason = "the vendor's names")]
        pub struct $struct {
            looked_in: Vec<std::path::PathBuf>,
            $($name: Option<unsafe extern "C" fn($($kind),*) -> $returns>,)*
        }

        #[expect(non_snake_case, reason = "the vendor's names")]
        impl $struct {
            /// The functions of this table, in its order.
            pub const ROWS: &'static [$crate::symbols::Row] = &[$($crate::symbols::Row {
                name: stringify!($name),
                family: $family,
                headers: $crate::headers::HeaderSet::$headers,
                prototype: Some($crate::symbols::Prototype {
                    arguments: &[$((stringify!($argument), stringify!($kind)),)*],
                    returns: stringify!($returns),
                }),
            },)*];

            /// Looks every function up, one by one.
            pub(crate) fn resolve(finder: &mut $crate::symbols::Finder<'_>) -> Self {
                let mut rows = Self::ROWS.iter();
                Self {
                    looked_in: finder.files($family),
                    $($name: {
                        let row = rows.next().expect("one row a function");
                        // SAFETY: the signature stands in the same line of the table as the name;
                        // tests compare it with the vendor's headers of all versions.
                        unsafe { finder.find(row) }
                    },)*
                }
            }

            $(
                #[doc = concat!("The address of `", stringify!($name), "`.")]
                ///
                /// # Errors
                /// [`MissingSymbol`](crate::symbols::MissingSymbol) if no loaded library has it.
                pub fn $name(
                    &self,
                ) -> Result<
                    unsafe extern "C" fn($($kind),*) -> $returns,
                    $crate::symbols::MissingSymbol,
                > {
                    self.$name.ok_or_else(|| $crate::symbols::MissingSymbol {
                        name: stringify!($name),
                        since: $crate::headers::HeaderSet::$headers,
                        looked_in: self.looked_in.clone(),
                    })
                }
            )*
        }
    };
}
pub(crate) use symbol_table;
