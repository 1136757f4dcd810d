//! A store whose process dies right after chosen commits: the commit is kept, the caller gets an error.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use ironwright_control_core::store::{MemStore, ReadTxn, Store, StoreError, WriteTxn};

/// What survives a crash: the data, and how many commits there were.
#[derive(Clone, Default)]
pub(crate) struct CrashStore {
    data: MemStore,
    plan: Rc<RefCell<Plan>>,
}

#[derive(Default)]
struct Plan {
    commits: u64,
    crash_after: BTreeSet<u64>,
}

impl CrashStore {
    /// Crashes after the commits with these numbers; the next one is 1.
    pub(crate) fn arm(&self, crash_after: impl IntoIterator<Item = u64>) {
        *self.plan.borrow_mut() = Plan { commits: 0, crash_after: crash_after.into_iter().collect() };
    }

    pub(crate) fn commits(&self) -> u64 {
        self.plan.borrow().commits
    }

    /// The data alone.
    pub(crate) fn data(&self) -> &MemStore {
        &self.data
    }
}

impl Store for CrashStore {
    fn read<R, E: From<StoreError>>(&self, f: impl FnOnce(&dyn ReadTxn) -> Result<R, E>) -> Result<R, E> {
        self.data.read(f)
    }

    fn write<R, E: From<StoreError>>(
        &self,
        f: impl FnMut(&mut dyn WriteTxn) -> Result<R, E>,
    ) -> Result<R, E> {
        let before = self.data.version();
        let result = self.data.write(f)?;
        if self.data.version() == before {
            return Ok(result);
        }
        let mut plan = self.plan.borrow_mut();
        plan.commits += 1;
        let commits = plan.commits;
        if plan.crash_after.remove(&commits) {
            return Err(StoreError::backend("committing", "the process was killed").into());
        }
        Ok(result)
    }

    fn version(&self) -> u64 {
        self.data.version()
    }
}
