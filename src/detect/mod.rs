//! (room `detect`; see ARCHITECTURE.md)
