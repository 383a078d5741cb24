//! Carries out what was decided about attributes (`setting.rs`): one system call for each step.
//!
//! A step that the kernel refuses has the steps before it undone, as the server, so that the file
//! is as it was but for its time of change. What owners cannot see is not brought back:
//! capabilities of a program (`security.capability`), which a new owner takes away.

use rustix::fd::BorrowedFd;
use rustix::fs::{Access as Allowed, AtFlags, FileType, Gid, Mode, Statx, StatxFlags};
use rustix::fs::{StatxTimestamp, Timespec, Timestamps, Uid};
use rustix::path::DecInt;

use crate::attributes::{Attributes, SetAttributes};
use crate::node::Node;
use crate::request::Request;
use crate::setting::{By, Caller, Existing, Plan, Step, Subject, decide, needs_write};
use crate::status::Status;
use crate::verifier::Work;

impl Request<'_> {
    /// What a request for attributes comes to.
    ///
    /// # Errors
    /// It is refused, and nothing has changed.
    pub(crate) fn decide(&self, subject: &Subject, wanted: &SetAttributes) -> Result<Plan, Status> {
        let caller = Caller {
            who: &self.who,
            powers: self.state.server.powers(&self.who),
        };
        Ok(decide(subject, &caller, wanted)?)
    }

    /// Decides and carries out what is wanted of a file that has these attributes.
    ///
    /// # Errors
    /// It is refused, and the file is as it was; or the file system failed.
    pub(crate) fn set_attributes(
        &self,
        node: &Node,
        found: &Attributes,
        wanted: &SetAttributes,
    ) -> Result<Plan, Status> {
        let asks = found.user != self.who.user && needs_write(wanted);
        let plan = self.decide(
            &Subject::There(Existing {
                kind: found.kind,
                user: found.user,
                group: found.group,
                may_write: asks && self.is_allowed(node, Allowed::WRITE_OK)?,
            }),
            wanted,
        )?;
        self.carry_out(node, &plan)?;
        Ok(plan)
    }

    /// Takes all steps of a plan, or none.
    ///
    /// # Errors
    /// As [`Request::set_attributes`].
    pub(crate) fn carry_out(&self, node: &Node, plan: &Plan) -> Result<(), Status> {
        // Opened before the first step: that may be refused, too.
        let data = plan.size.map(|_| self.writer(node)).transpose()?;
        let before = match plan.steps().nth(1) {
            Some(_) => Some(Before::of(node)?),
            None => None,
        };
        for (taken, step) in plan.steps().enumerate() {
            let Err(status) = self.take(node, data, step) else {
                continue;
            };
            if let Some(before) = before {
                plan.steps()
                    .take(taken)
                    .for_each(|step| self.undo(node, &before, step));
            }
            return Err(status);
        }
        Ok(())
    }

    fn take(&self, node: &Node, data: Option<BorrowedFd<'_>>, step: Step) -> Result<(), Status> {
        match step {
            Step::Owner { user, group } => self.act(|| Ok(set_owner(node, user, group)?)),
            Step::Mode(mode) => self.act(|| Ok(self.set_mode(node, mode)?)),
            // As the server: the kernel takes the group's bit from those who are not in the group,
            // and a directory may have it from the one above.
            Step::Bits(bits) => {
                let mode = node.attributes()?.mode;
                match mode & bits == bits {
                    true => Ok(()),
                    false => Ok(self.set_mode(node, mode | bits)?),
                }
            }
            Step::Size(size) => {
                let file = data.ok_or(Status::Invalid)?;
                let verifier = self.state.export.nodes.verifier();
                let resize = || rustix::fs::ftruncate(file, size);
                self.act(|| Ok(verifier.run(node.key, Work::Resize, resize)?))
            }
            Step::Times {
                accessed,
                modified,
                by,
            } => {
                let times = Timestamps {
                    last_access: accessed.timespec(),
                    last_modification: modified.timespec(),
                };
                match by {
                    By::Caller => self.act(|| Ok(set_times(node, &times)?)),
                    By::Server => Ok(set_times(node, &times)?),
                }
            }
        }
    }

    fn set_mode(&self, node: &Node, mode: u32) -> rustix::io::Result<()> {
        let (files, name) = (self.state.export.descriptors(), DecInt::from_fd(&node.path));
        rustix::fs::chmodat(files, name, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// Brings back what a step has changed.
    fn undo(&self, node: &Node, before: &Before, step: Step) {
        let mode = || match node.kind {
            FileType::Symlink => Ok(()),
            _ => self.set_mode(node, before.mode),
        };
        let undone = match step {
            // A new owner takes bits of the mode away.
            Step::Owner { .. } => {
                let owner = set_owner(node, Some(before.user), Some(before.group));
                owner.and_then(|()| mode())
            }
            Step::Mode(_) | Step::Bits(_) => mode(),
            Step::Times { .. } => set_times(node, &before.times),
            // Data that was cut off cannot be brought back: the size is last of what is refused.
            Step::Size(_) => Ok(()),
        };
        if let Err(errno) = undone {
            log::warn!("a file keeps a part of a change that was refused: {errno}");
        }
    }
}

fn set_owner(node: &Node, user: Option<u32>, group: Option<u32>) -> rustix::io::Result<()> {
    let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
    rustix::fs::chownat(&node.path, c"", user, group, AtFlags::EMPTY_PATH)
}

fn set_times(node: &Node, times: &Timestamps) -> rustix::io::Result<()> {
    rustix::fs::utimensat(&node.path, c"", times, AtFlags::EMPTY_PATH)
}

/// What steps may change, exactly: [`Attributes`] has times as the protocol knows them.
struct Before {
    user: u32,
    group: u32,
    mode: u32,
    times: Timestamps,
}

impl Before {
    fn of(node: &Node) -> Result<Before, Status> {
        let wanted = StatxFlags::BASIC_STATS;
        let found: Statx = rustix::fs::statx(&node.path, c"", AtFlags::EMPTY_PATH, wanted)?;
        let time = |time: StatxTimestamp| Timespec {
            tv_sec: time.tv_sec,
            tv_nsec: time.tv_nsec.into(),
        };
        Ok(Before {
            user: found.stx_uid,
            group: found.stx_gid,
            mode: u32::from(found.stx_mode) & 0o7777,
            times: Timestamps {
                last_access: time(found.stx_atime),
                last_modification: time(found.stx_mtime),
            },
        })
    }
}
