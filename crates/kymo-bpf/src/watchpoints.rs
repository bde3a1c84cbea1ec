//! `watchpoint:FUNCTION+argN`: a probe at the function reports the address to user space, which
//! watches it while the process is stopped.

use crate::ast::{BinaryOperator, BlockTree, Expression, ExpressionKind, ProbeTree, ProgramTree};
use crate::ast::{Statement, StatementKind};
use crate::facts::{CompileOptions, TypeFacts};
use crate::lexer::error_at;
use crate::object::{AttachPoint, AttachTarget, ProgramPosition, SourceMessage};

/// The call that sends an address; it cannot be written.
pub(crate) const WATCH: &str = "<watch>";

/// Whether a point reports the address of a watchpoint.
#[must_use]
pub fn is_watchpoint_setup(point: &AttachPoint) -> bool {
    let is_probe = matches!(point.target, AttachTarget::Uprobe { .. });
    is_probe && point.name.split(':').next().is_some_and(|kind| kind.ends_with("watchpoint"))
}

/// Names the functions that watchpoints are of, and adds the probes at them.
pub(crate) fn with_setup_probes(
    mut tree: ProgramTree,
    options: &CompileOptions,
    facts: &dyn TypeFacts,
) -> Result<ProgramTree, SourceMessage> {
    let mut setup = Vec::new();
    for probe in &mut tree.probes {
        let mut points = Vec::new();
        for (point, position) in std::mem::take(&mut probe.points) {
            let AttachTarget::Watchpoint { function, .. } = &point.target else {
                points.push((point, position));
                continue;
            };
            if function.is_empty() {
                points.push((point, position));
                continue;
            }
            let failed = |what: String| error_at(position, format!("{}: {what}", point.name));
            let pid = options.pid.or(options.child_pid);
            let pid = pid.ok_or_else(|| failed("needs a process: -p PID or -c CMD".into()))?;
            let found = facts.expand(&point).map_err(failed)?;
            if found.is_empty() {
                return Err(error_at(
                    position,
                    format!("No matches for {}.", point.name.replacen(':', " ", 1)),
                ));
            }
            setup.extend(found.iter().filter_map(|point| setup_probe(point, pid, position)));
            points.extend(found.into_iter().map(|point| (point, position)));
        }
        probe.points = points;
    }
    tree.probes.extend(setup);
    Ok(tree)
}

/// `uprobe:PATH:FUNCTION /pid == PID/ { <watch>(NAME, argN, is_asynchronous) }`
fn setup_probe(point: &AttachPoint, pid: u32, position: ProgramPosition) -> Option<ProbeTree> {
    let AttachTarget::Watchpoint { function, argument, path, asynchronous, .. } = &point.target
    else {
        return None;
    };
    let target = AttachTarget::Uprobe {
        path: path.clone(),
        function: function.clone(),
        offset: 0,
        address: None,
        language: String::new(),
        at_return: false,
    };
    let made = |kind| Expression { kind: Box::new(kind), position, depth: 2 };
    let name = |name: &str| made(ExpressionKind::Name(name.into()));
    let pid = made(ExpressionKind::Integer(pid.into()));
    let filter = made(ExpressionKind::Binary(BinaryOperator::Equal, name("pid"), pid));
    let arguments = vec![
        made(ExpressionKind::Text(point.name.clone())),
        name(&format!("arg{argument}")),
        made(ExpressionKind::Boolean(*asynchronous)),
    ];
    let call = made(ExpressionKind::Call(WATCH.into(), arguments));
    let statement = Statement { kind: StatementKind::Expression(call), position };
    Some(ProbeTree {
        points: vec![(AttachPoint { name: point.name.clone(), target }, position)],
        filter: Some(filter),
        body: BlockTree { statements: vec![statement], value: None },
        position,
    })
}
