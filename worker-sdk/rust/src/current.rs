//! Which message this thread is at work on: the log and the panic hook ask.

use std::cell::RefCell;
use std::sync::Arc;

use crate::handle::Handle;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Handle>>> = const { RefCell::new(None) };
}

/// Does some work on a message.
pub(crate) fn within<T>(handle: &Arc<Handle>, work: impl FnOnce() -> T) -> T {
    let _scope = Scope(CURRENT.replace(Some(Arc::clone(handle))));
    work()
}

/// That message, if there is one.
pub(crate) fn handle() -> Option<Arc<Handle>> {
    let current = |current: &RefCell<Option<Arc<Handle>>>| current.borrow().clone();
    CURRENT.try_with(current).ok().flatten()
}

/// What was there before.
struct Scope(Option<Arc<Handle>>);

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
