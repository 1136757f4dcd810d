//! Which queued commands go out now: per lane, as many as the agent has credits for.

use ironwright_proto::{
    kinds::{Lane, Role},
    wire,
};

use super::{COMMANDS, Command, State, WAITING, open_key, open_of};
use crate::{error::Error, tx::Tx};

/// Marks the commands that go out in the session of `node` and gives them; to be sent after the commit.
/// `role` and `boot_id` are what the agent said in the Hello of that session.
pub(crate) fn dispatch(
    tx: &mut Tx<'_>,
    node: &str,
    role: Role,
    boot_id: &str,
) -> Result<Vec<wire::Command>, Error> {
    let commands = open_of(tx.txn, node)?;
    let lane_of = |command: &Command| command.kind().map(|kind| kind.lane);
    let mut room = Lane::ALL.map(|lane| {
        let busy = commands.iter().filter(|c| c.state.in_flight() && lane_of(c) == Some(lane)).count();
        (lane, lane.credits().saturating_sub(busy))
    });
    let mut frames = Vec::new();
    for mut command in commands {
        let Some(kind) = command.kind() else { continue };
        // An order for the ramdisk must not reach the operating system of the same node.
        if command.state != State::Queued || command.role != role.as_str() {
            continue;
        }
        let Some((_, credits)) = room.iter_mut().find(|(lane, credits)| *lane == kind.lane && *credits > 0)
        else {
            continue;
        };
        *credits -= 1;
        let retry_safe = command.retry_safe();
        command.state = State::Sent;
        boot_id.clone_into(&mut command.sent_boot_id);
        COMMANDS.put(tx.txn, &command.id, &command)?;
        WAITING.delete(tx.txn, &open_key(&command))?;
        frames.push(wire::Command {
            id: command.id,
            kind: command.kind,
            args: command.args,
            not_after_unix_ms: command.not_after_ms,
            min_generation: command.min_generation,
            retry_safe,
            node_id: command.node,
        });
    }
    Ok(frames)
}
