//! (room `report`; see ARCHITECTURE.md)
