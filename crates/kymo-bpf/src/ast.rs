//! A program as it stands, before types.

use std::collections::HashMap;
use std::rc::Rc;

use crate::object::{AttachPoint, ProgramPosition, SourceMessage};
use crate::preprocess::HeaderMacros;

/// A program.
#[derive(Debug, Default)]
pub(crate) struct ProgramTree {
    pub(crate) config: Vec<(String, String, ProgramPosition)>,
    pub(crate) map_declarations: Vec<MapDeclaration>,
    pub(crate) records: Vec<RecordDeclaration>,
    pub(crate) enumerations: Vec<EnumerationDeclaration>,
    pub(crate) typedefs: Vec<TypedefDeclaration>,
    pub(crate) macros: HashMap<String, Rc<MacroTree>>,
    pub(crate) probes: Vec<ProbeTree>,
    pub(crate) imports: Vec<(String, ProgramPosition)>,
    pub(crate) includes: Vec<(String, ProgramPosition)>,
    /// Macros of the headers.
    pub(crate) header_macros: HeaderMacros,
    /// Reason why a header is missing.
    pub(crate) missing_header: Option<String>,
    /// Header declarations that failed to parse.
    pub(crate) warnings: Vec<SourceMessage>,
}

impl ProgramTree {
    /// Adds another program; its probes come first, as those who import it rely on them.
    pub(crate) fn merge(&mut self, other: ProgramTree) {
        self.config.extend(other.config);
        self.map_declarations.extend(other.map_declarations);
        self.records.extend(other.records);
        self.enumerations.extend(other.enumerations);
        self.typedefs.extend(other.typedefs);
        self.imports.extend(other.imports);
        self.includes.extend(other.includes);
        self.warnings.extend(other.warnings);
        self.header_macros.extend(other.header_macros);
        self.missing_header = self.missing_header.take().or(other.missing_header);
        for (name, tree) in other.macros {
            self.macros.entry(name).or_insert(tree);
        }
        let own = std::mem::replace(&mut self.probes, other.probes);
        self.probes.extend(own);
    }
}

/// `let @name = lruhash(100);`
#[derive(Debug)]
pub(crate) struct MapDeclaration {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) entries: u64,
    pub(crate) position: ProgramPosition,
}

/// `struct name { … };`
#[derive(Debug)]
pub(crate) struct RecordDeclaration {
    pub(crate) name: String,
    pub(crate) is_union: bool,
    pub(crate) members: Vec<MemberDeclaration>,
    pub(crate) alignment: AlignmentDeclaration,
    /// Whether it is declared in a header: there an unknown type of a member is no error.
    pub(crate) of_header: bool,
}

/// `typedef type name;`
#[derive(Debug)]
pub(crate) struct TypedefDeclaration {
    pub(crate) name: String,
    pub(crate) type_name: TypeName,
    pub(crate) of_header: bool,
}

#[derive(Debug)]
pub(crate) struct MemberDeclaration {
    pub(crate) name: String,
    pub(crate) type_name: TypeName,
    pub(crate) bits: Option<u8>,
    pub(crate) alignment: AlignmentDeclaration,
}

/// Alignment that a declaration asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AlignmentDeclaration {
    pub(crate) is_packed: bool,
    /// `aligned(n)`: bytes at least; 0 without it.
    pub(crate) least: u32,
    /// `#pragma pack(n)`: bytes at most; 0 without it.
    pub(crate) most: u32,
}

/// `enum name { A, B = 3 };`
#[derive(Debug)]
pub(crate) struct EnumerationDeclaration {
    pub(crate) name: String,
    pub(crate) variants: Vec<(i64, String)>,
}

/// `macro name($a, b, @c) { … }`
#[derive(Debug)]
pub(crate) struct MacroTree {
    pub(crate) parameters: Vec<MacroParameter>,
    pub(crate) body: BlockTree,
}

#[derive(Debug, Clone)]
pub(crate) enum MacroParameter {
    Variable(String),
    Map(String),
    Expression(String),
}

#[derive(Debug)]
pub(crate) struct ProbeTree {
    pub(crate) points: Vec<(AttachPoint, ProgramPosition)>,
    pub(crate) filter: Option<Expression>,
    pub(crate) body: BlockTree,
    pub(crate) position: ProgramPosition,
}

/// Statements, and the value of a block expression.
#[derive(Debug, Default)]
pub(crate) struct BlockTree {
    pub(crate) statements: Vec<Statement>,
    pub(crate) value: Option<Box<Expression>>,
}

/// A type as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TypeName {
    /// `uint64`, `struct x`, `size_t`.
    Named(String),
    Pointer(Box<TypeName>),
    Array(Box<TypeName>, u32),
    /// An array whose number of elements is computed of sizes of types.
    Counted(Box<TypeName>, Rc<Expression>),
    /// `typeof(expression)`.
    Of(Rc<Expression>),
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) kind: StatementKind,
    pub(crate) position: ProgramPosition,
}

#[derive(Debug)]
pub(crate) enum StatementKind {
    Expression(Expression),
    /// `target = value`; `+=` comes as a binary value.
    Assign(Expression, Expression),
    Let(String, Option<TypeName>, Option<Expression>),
    If(Expression, BlockTree, BlockTree),
    While(Expression, BlockTree),
    ForMap(String, String, BlockTree),
    ForRange(String, Expression, Expression, BlockTree),
    Unroll(Expression, BlockTree),
    Return(Option<Expression>),
    Break,
    Continue,
    Block(BlockTree),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expression {
    pub(crate) kind: Box<ExpressionKind>,
    pub(crate) position: ProgramPosition,
    /// Levels below it, itself included.
    pub(crate) depth: u16,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ExpressionKind {
    Integer(u64),
    Boolean(bool),
    Text(String),
    Name(String),
    Variable(String),
    Parameter(u32),
    ParameterCount,
    Map(String, Vec<Expression>),
    Not(Expression),
    Negate(Expression),
    Complement(Expression),
    Dereference(Expression),
    AddressOf(Expression),
    Binary(BinaryOperator, Expression, Expression),
    Ternary(Expression, Expression, Expression),
    Cast(TypeName, Expression),
    Field(Expression, String),
    Index(Expression, Expression),
    Tuple(Vec<Expression>),
    /// `(a = 1, b = 2)`: names, and values.
    NamedTuple(Vec<String>, Vec<Expression>),
    Call(String, Vec<CallArgument>),
    /// Target, step, whether the value is the one before.
    Step(Expression, i64, bool),
    SizeofType(TypeName),
    /// `typeof(type)` as an argument of a macro.
    Type(TypeName),
    SizeofValue(Expression),
    OffsetofType(TypeName, Vec<String>),
    OffsetofValue(Expression, Vec<String>),
    Block(Rc<BlockTree>),
}

/// An argument of a call.
pub(crate) type CallArgument = Expression;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    LogicalAnd,
    LogicalOr,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl PartialEq for BlockTree {
    /// Blocks are never compared; no two are equal.
    fn eq(&self, _: &Self) -> bool {
        false
    }
}
