//! `muster doctor`, `muster env` and `muster ranktable`: on broken hosts in folders, on toolkits made
//! with the system's compiler, and as commands.

mod broken;
mod command;
mod docs;
mod healthy;
mod host;
mod toolkits;
