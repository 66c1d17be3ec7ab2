//! The rule by which the caller's registers are found from a place in the code: read from `.eh_frame`, as the compiler wrote
//! it, in the memory of the job.
//!
//! Cold, but called from hooks: no heap, no lock; bounded work. What is not understood has no rule, and the stack ends there.
//! gimli reads the bytes. Its table of rows is not used: that has a rule for every register, which is kilobytes on the stack,
//! and vector code has more of them than any bound; two registers matter here.

use super::modules::LoadedTables;
use crate::recorder::stack_memory::{Base, Rule, Saved};
use gimli::{
    BaseAddresses, CallFrameInstruction as Do, CallFrameInstructionIter, CommonInformationEntry, EhFrame,
    EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian, Operation, Register, UnwindExpression,
    UnwindSection, X86_64,
};

/// Nothing is known of the caller.
pub(super) const UNKNOWN: Rule = Rule { base: Base::Unknown, offset: 0, rbp: Saved::Same };
/// Instructions of a call frame program that are followed; no compiler writes so many before a place.
const MOST: usize = 4096;

/// The memory of a library that is loaded.
type Memory = EndianSlice<'static, LittleEndian>;

/// The rule at `pc`, by the `.eh_frame_hdr` of its library; `None` where nothing is said of this place, or nothing that is
/// understood.
#[cold]
pub(super) fn rule(tables: &LoadedTables, pc: usize) -> Option<Rule> {
    /// How every linker begins it: version 1, then how the place of `.eh_frame`, the number of rows (32 bits, so that nothing that is
    /// computed from it overflows) and the rows are written.
    const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let memory = |from: usize| {
        // SAFETY: all of it is of a library that was loaded when this began, and whose code is on this thread's stack
        // (`LoadedTables`). Between its segments nothing is read: its tables name entries of `.eh_frame` only.
        let bytes = unsafe { core::slice::from_raw_parts(from as *const u8, tables.end.checked_sub(from)?) };
        Some(EndianSlice::new(bytes, LittleEndian))
    };
    let header = memory(tables.header)?;
    if !header.starts_with(&HEADER) {
        return None;
    }
    let (header, entries) = (EhFrameHdr::from(header), EhFrame::from(memory(tables.start)?));
    let bases =
        BaseAddresses::default().set_eh_frame_hdr(tables.header as u64).set_eh_frame(tables.start as u64);
    let header = header.parse(&bases, 8).ok()?;
    let entry = header.table()?.lookup(pc as u64, &bases).ok()?.direct().ok()?;
    let entry = EhFrameOffset((entry as usize).checked_sub(tables.start)?);
    let fde = entries.fde_from_offset(&bases, entry, EhFrame::cie_from_offset).ok()?;
    let common = fde.cie();
    // What a signal's frame interrupted is not a call.
    let is_call = !fde.is_signal_trampoline() && common.return_address_register() == X86_64::RA;
    if !is_call || !fde.contains(pc as u64) {
        return None;
    }
    let first = Row { base: Base::Unknown, offset: 0, rbp: Some(Saved::Same), caller: Some(Caller::Pushed) };
    let initial = first.after(common.instructions(&entries, &bases), &entries, common, first, 0..u64::MAX)?;
    let place = fde.initial_address()..pc as u64;
    initial.after(fde.instructions(&entries, &bases), &entries, common, initial, place)?.rule()
}

/// A row of the table that a program describes, as far as it matters here.
#[derive(Clone, Copy)]
struct Row {
    base: Base,
    offset: i64,
    /// `None`: it is somewhere that is not understood.
    rbp: Option<Saved>,
    /// `None`: as above.
    caller: Option<Caller>,
}

/// Where the return address is.
#[derive(Clone, Copy)]
enum Caller {
    /// Below the CFA, as a call leaves it.
    Pushed,
    /// There is none.
    Nobody,
}

impl Row {
    /// The row at the end of `place`, where a program that begins at its start has followed this one.
    fn after(
        self,
        mut program: CallFrameInstructionIter<Memory>,
        entries: &EhFrame<Memory>,
        common: &CommonInformationEntry<Memory>,
        initial: Row,
        place: core::ops::Range<u64>,
    ) -> Option<Row> {
        let (mut row, mut at, mut kept, mut depth) = (self, place.start, [self; 8], 0);
        let signed = |n: u64| i64::try_from(n).ok();
        let scaled = |n: i64| n.checked_mul(common.data_alignment_factor());
        for _ in 0..MOST {
            let Some(next) = program.next().ok()? else { return Some(row) };
            match next {
                Do::SetLoc { address } => at = address,
                Do::AdvanceLoc { delta } => {
                    at = at.checked_add(u64::from(delta).checked_mul(common.code_alignment_factor())?)?;
                }
                Do::DefCfa { register, offset } => (row.base, row.offset) = (base(register), signed(offset)?),
                Do::DefCfaSf { register, factored_offset } => {
                    (row.base, row.offset) = (base(register), scaled(factored_offset)?);
                }
                Do::DefCfaRegister { register } => row.base = base(register),
                Do::DefCfaOffset { offset } => row.offset = signed(offset)?,
                Do::DefCfaOffsetSf { factored_offset } => row.offset = scaled(factored_offset)?,
                Do::DefCfaExpression { expression } => {
                    let word = relative_to_rbp(&expression, entries, common, true);
                    (row.base, row.offset) = word.map_or((Base::Unknown, 0), |n| (Base::AtRbp, n));
                }
                // An undefined rbp is not looked at by the caller.
                Do::Undefined { register } => row.set(register, row.rbp, Some(Caller::Nobody)),
                Do::SameValue { register } => row.set(register, Some(Saved::Same), row.caller),
                Do::Offset { register, factored_offset } => {
                    row.save(register, scaled(signed(factored_offset)?)?);
                }
                Do::OffsetExtendedSf { register, factored_offset } => {
                    row.save(register, scaled(factored_offset)?);
                }
                Do::Expression { register, expression } => {
                    let at = relative_to_rbp(&expression, entries, common, false);
                    row.set(register, at.and_then(|n| Some(Saved::Rbp(n.try_into().ok()?))), None);
                }
                Do::ValOffset { register, .. }
                | Do::ValOffsetSf { register, .. }
                | Do::Register { dest_register: register, .. }
                | Do::ValExpression { register, .. } => row.set(register, None, None),
                Do::Restore { register } => row.set(register, initial.rbp, initial.caller),
                Do::RememberState => {
                    *kept.get_mut(depth)? = row;
                    depth += 1;
                }
                Do::RestoreState => {
                    depth = depth.checked_sub(1)?;
                    row = *kept.get(depth)?;
                }
                Do::ArgsSize { .. } | Do::Nop => {}
                _ => return None,
            }
            if at > place.end {
                return Some(row);
            }
        }
        None
    }

    /// What is said of a register: `rbp` if it is that, `caller` if it is the return address.
    fn set(&mut self, register: Register, rbp: Option<Saved>, caller: Option<Caller>) {
        match register {
            X86_64::RBP => self.rbp = rbp,
            X86_64::RA => self.caller = caller,
            _ => {}
        }
    }

    /// The register is saved at the CFA plus `offset`.
    fn save(&mut self, register: Register, offset: i64) {
        let rbp = i16::try_from(offset).ok().map(Saved::Cfa);
        self.set(register, rbp, (offset == -8).then_some(Caller::Pushed));
    }

    fn rule(self) -> Option<Rule> {
        match self.caller? {
            Caller::Nobody => Some(Rule::default()),
            Caller::Pushed => {
                Some(Rule { base: self.base, offset: self.offset.try_into().ok()?, rbp: self.rbp? })
            }
        }
    }
}

fn base(register: Register) -> Base {
    match register {
        X86_64::RSP => Base::Rsp,
        X86_64::RBP => Base::Rbp,
        _ => Base::Unknown,
    }
}

/// The constant `n` of an expression that is `rbp + n`, or the word there.
fn relative_to_rbp(
    expression: &UnwindExpression<usize>,
    entries: &EhFrame<Memory>,
    common: &CommonInformationEntry<Memory>,
    is_word: bool,
) -> Option<i64> {
    let mut all = expression.get(entries).ok()?.operations(common.encoding());
    let Operation::RegisterOffset { register: X86_64::RBP, offset, .. } = all.next().ok()?? else {
        return None;
    };
    let is_all = match all.next().ok()? {
        Some(Operation::Deref { size: 8, space: false, .. }) if is_word => all.next().ok()?.is_none(),
        Some(_) => false,
        None => !is_word,
    };
    is_all.then_some(offset)
}

#[cfg(test)]
mod tests {
    use super::super::modules;
    use super::*;

    /// The tables of this program, moved to where they can be changed; their code moves with them.
    fn copy() -> (Vec<u8>, usize) {
        super::super::start();
        let here = copy as *const () as usize;
        let m = modules::current().unwrap().find(here).unwrap();
        let tables = m.tables(here).unwrap();
        // SAFETY: the segment of the tables, of a program that is running.
        let bytes =
            unsafe { core::slice::from_raw_parts(tables.header as *const u8, tables.end - tables.header) };
        let bytes = bytes.to_vec();
        let moved = (bytes.as_ptr() as usize).wrapping_sub(tables.header);
        (bytes, here.wrapping_add(moved))
    }

    #[test]
    fn damaged_tables_are_read_no_further_than_they_reach() {
        let (mut bytes, code) = copy();
        let tables =
            |end| LoadedTables { header: bytes.as_ptr() as usize, start: bytes.as_ptr() as usize, end };
        let (start, end) = (bytes.as_ptr() as usize, bytes.as_ptr() as usize + bytes.len());
        let whole = rule(&tables(end), code + 1).unwrap();
        assert_ne!(whole.base, Base::Unknown);
        for cut in (0..64).chain((64..bytes.len()).step_by(997)) {
            rule(&tables(start + cut), code + 1);
        }
        let (mut seed, mut changed) = (7u64, 0);
        for round in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // The header's first bytes, then anything: entries are short, so that many are hit.
            let at = if round % 4 == 0 { round / 4 % 16 } else { (seed >> 33) as usize % bytes.len() };
            let before = bytes[at];
            bytes[at] = (seed >> 24) as u8;
            let tables = LoadedTables { header: start, start, end };
            changed += usize::from(rule(&tables, code + 1) != Some(whole));
            rule(&tables, code.wrapping_add(seed as usize % 100_000));
            bytes[at] = before;
        }
        assert!(changed > 1000, "{changed}");
    }
}
