//! tracefs format text to field layouts; print formats to text.
