//! (room `buffer`; see ARCHITECTURE.md)
