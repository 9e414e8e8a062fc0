//! Jobs made of boards.
