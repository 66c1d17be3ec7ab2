//! What keeps something, as the probe has named it.

use super::needs::Read;

/// What is known of a keeper, from the probe's answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeper {
    /// What kind of place it is, in the words of the answer: `attribute`, `class`, `global`, `local`, `closure`, `default`, `generator`,
    /// `frame`, `context` (a context variable).
    pub(crate) kind: String,
    /// The attribute or variable.
    pub(crate) variable: String,
    /// Of an attribute: its class.
    pub(crate) class: Option<String>,
    /// Of a global: the module that it is one of.
    pub(crate) module: Option<String>,
    /// Of a local: the qualified name of its function, and that one's first line.
    pub(crate) function: Option<String>,
    pub(crate) first_line: Option<u32>,
    /// Type of what is there: `list`, `dict`, `Tensor`.
    pub(crate) type_name: String,
    /// The blocks are kept by autograd graphs.
    pub(crate) graph: bool,
    /// The name gets another object at every step.
    pub(crate) rebound: bool,
    /// The tensors are its entries themselves.
    pub(crate) direct: bool,
    /// There are more and more such containers, one for each entry of what grows; this one does not grow.
    pub(crate) each: bool,
    /// Nothing says that it gets more and more: it was found once, and what only sets an entry may have put it there.
    pub(crate) once: bool,
    /// And a backward may still go through that graph: nothing that it saved was seen to have been changed in place since.
    pub(crate) awaited: bool,
    /// It is a training: an optimizer or calls of backward count its steps.
    pub(crate) trains: bool,
    /// The statement was found in the file of its class: calls of that one's methods elsewhere are only the way to it.
    pub(crate) placed: bool,
    /// It is a variable of another file's module.
    pub(crate) is_outside: bool,
    /// The same by other names: `log = kept` in a class.
    pub(super) also: Vec<Keeper>,
    /// Where another file reads all of it.
    pub(super) read: Option<Read>,
    /// Another file knows it by name: there it stays what it was made, whatever the name is given here.
    pub(super) is_shared: bool,
    /// Lines of this file that the allocation of what is kept led through.
    pub(crate) allocated: Vec<u32>,
}

/// What a keeper is called at some place of the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// A name of a function, or of the module.
    Of(usize, String),
    /// An attribute.
    Attribute(String),
    /// An attribute of `self` in a class of this name, which was given it.
    Own(String, String),
    /// A method that returns it.
    Method(String),
    /// A function, in such a scope, that returns it.
    Function(usize, String),
}
