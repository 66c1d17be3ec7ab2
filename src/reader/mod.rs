//! (room `reader`; see ARCHITECTURE.md)
