//! How a command says that it could not do what was asked: a class, one line, and what to do next.

use std::fmt;

use crate::exit::Exit;

/// An outcome other than a report: printed as `error: …` and `help: …` on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class, and with it the exit code.
    pub exit: Exit,
    /// One lower-case fragment without a final stop: what was given and what is allowed.
    pub message: String,
    /// What to do next, where we know.
    pub help: Option<String>,
}

impl Failure {
    /// A failure of `exit`'s class.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            help: None,
        }
    }

    /// An error of the library: the class is the one that its code stands for, INTERNAL where there is
    /// none.
    #[must_use]
    pub fn of(code: u8, error: &dyn std::error::Error, help: &str) -> Self {
        let exit = Exit::from_code(code.into()).unwrap_or(Exit::Internal);
        Self::new(exit, error.to_string()).with_help(help)
    }

    /// The caller asked for something that does not exist or is not allowed.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The host lacks something.
    #[must_use]
    pub fn resource(message: impl Into<String>) -> Self {
        Self::new(Exit::Resource, message)
    }

    /// A bug of ours, or evidence that should be there is not.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }

    /// The same failure with a line that says what to do next.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
