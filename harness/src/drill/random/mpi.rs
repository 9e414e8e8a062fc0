//! Which mpirun there is on this machine.

use std::process::{Command, Stdio};

/// An mpirun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mpi {
    /// Its name, for people.
    pub name: &'static str,
    program: &'static str,
    options: &'static [&'static str],
}

/// What is looked for: its name, its programs, a word of its `--version`, and its options. All of them put the
/// rank in front of each line.
type Kind = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const KINDS: [Kind; 2] = [
    (
        "Open MPI",
        &["mpirun.openmpi", "mpirun"],
        "Open MPI",
        &["--oversubscribe", "--tag-output", "-n"],
    ),
    (
        "MPICH",
        &["mpirun.mpich", "mpiexec.hydra"],
        "HYDRA",
        &["-prepend-rank", "-n"],
    ),
];

impl Mpi {
    /// What is installed, and the names of what is not.
    #[must_use]
    pub fn installed() -> (Vec<Self>, Vec<&'static str>) {
        let mut found = Vec::new();
        let mut lacking = Vec::new();
        for (name, programs, word, options) in KINDS {
            match programs.iter().find(|program| says(program, word)) {
                Some(program) => found.push(Self {
                    name,
                    program,
                    options,
                }),
                None => lacking.push(name),
            }
        }
        (found, lacking)
    }

    /// The words of a command up to the number of ranks.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let words = std::iter::once(&self.program).chain(self.options);
        words.map(|word| (*word).to_owned()).collect()
    }
}

/// Whether a program is there and is the one that is meant.
fn says(program: &str, word: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    let output = command.stderr(Stdio::null()).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(word))
}
