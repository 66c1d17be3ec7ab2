//! (room `writer`; see ARCHITECTURE.md)
