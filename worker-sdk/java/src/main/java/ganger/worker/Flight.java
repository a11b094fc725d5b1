package ganger.worker;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/**
 * The tasks in hand, the cancellations that came before their messages, and what comes when nothing new is
 * begun. The reading end stays open until nothing is in hand: a daemon whose messages nobody reads takes the
 * worker for stuck, with all that it works on.
 */
final class Flight {
    private static final int EARLY_MAX = 1000;

    private final Map<Long, Task> tasks = new HashMap<>();
    // Stdin and the pipe have no common order.
    private final Set<Long> early = new LinkedHashSet<>();
    private final Consumer<Task> giveBack;
    private final Runnable leave;
    private boolean ending;
    private int inHand;
    private final Map<Long, Task> held = new LinkedHashMap<>();

    /** With what answers a task that is not begun, and what ends the reading. */
    Flight(Consumer<Task> giveBack, Runnable leave) {
        this.giveBack = giveBack;
        this.leave = leave;
    }

    /**
     * Whether to work on it, until {@link #putDown}. When this worker is about to end it waits to be given back
     * instead, until it is cancelled at the latest.
     */
    boolean take(Task task) {
        synchronized (this) {
            if (!ending) {
                inHand++;
                return true;
            }
            if (!early.remove(task.number())) {
                held.put(task.number(), task);
                return false;
            }
        }
        giveBack.accept(task);
        return false;
    }

    /** It is answered. */
    void putDown() {
        boolean over;
        synchronized (this) {
            inHand--;
            over = ending && inHand == 0;
        }
        if (over) {
            leave.run();
        }
    }

    /** Begins nothing new, and leaves once all that is in hand is answered. */
    void stop() {
        boolean over;
        synchronized (this) {
            ending = true;
            over = inHand == 0;
        }
        if (over) {
            leave.run();
        }
    }

    /** For the end, when nothing more comes. */
    void giveBackHeld() {
        List<Task> all;
        synchronized (this) {
            all = new ArrayList<>(held.values());
            held.clear();
        }
        all.forEach(giveBack);
    }

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
        Task back;
        synchronized (this) {
            back = held.remove(id);
            task = tasks.get(id);
            if (back == null && task == null) {
                remember(id); // it was answered, or is still in the pipe
            }
        }
        if (back != null) {
            giveBack.accept(back);
        } else if (task != null) {
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
