//! Recordings read and replayed.
