//! The judge on planted scenes: who is blamed, and that nobody is who merely waits.

mod blame;
mod chains;
mod circles;
mod gone;
mod plant;
