package ganger.worker;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The tasks in hand, and the cancellations that came before their messages. */
final class Flight {
    private static final int EARLY_MAX = 1000;

    private final Map<Long, Task> tasks = new HashMap<>();
    // Stdin and the pipe have no common order.
    private final Set<Long> early = new LinkedHashSet<>();

    /** From here on this thread may be interrupted for the task. */
    void begin(Task task) {
        task.begin();
        boolean cancelled;
        synchronized (this) {
            tasks.put(task.number(), task);
            cancelled = !early.isEmpty() && early.remove(task.number());
        }
        if (cancelled) {
            task.cancel();
        }
    }

    /** From here on it is not, and has forgotten that it was. */
    void end(Task task) {
        synchronized (this) {
            tasks.remove(task.number());
        }
        task.end();
    }

    void cancel(long id) {
        Task task;
        synchronized (this) {
            task = tasks.get(id);
            if (task == null) {
                remember(id); // it was answered, or is still in the pipe
            }
        }
        if (task != null) {
            task.cancel();
        }
    }

    void cancelAll() {
        List<Task> all;
        synchronized (this) {
            all = new ArrayList<>(tasks.values());
        }
        all.forEach(Task::cancel);
    }

    private void remember(long id) {
        if (early.size() >= EARLY_MAX) {
            Iterator<Long> oldest = early.iterator();
            oldest.next();
            oldest.remove();
        }
        early.add(id);
    }
}
