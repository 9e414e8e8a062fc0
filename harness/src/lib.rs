//! The tool: commands, checks and reports of `muster`.
