//! The one reader of the environment.
