package ganger.worker;

import java.io.InterruptedIOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.CancellationException;

/** What is said of a handler that has thrown something. */
final class Failure {
    // A dead letter keeps no more of a stack either. Its top says where, its end what was the first cause.
    private static final int TOP_CHARS_MAX = 5000;
    private static final int END_CHARS_MAX = 3000;
    private static final int CAUSES_MAX = 100;

    private Failure() { }

    /** The error in its first line and the stack below. */
    static String text(Throwable thrown) {
        String stack;
        try {
            StringWriter text = new StringWriter();
            thrown.printStackTrace(new PrintWriter(text));
            stack = text.toString().stripTrailing();
        } catch (RuntimeException | Error worse) { // of a getMessage() that throws
            stack = thrown.getClass().getName() + ", whose text throws " + worse.getClass().getName();
        }
        if (stack.length() <= TOP_CHARS_MAX + END_CHARS_MAX) {
            return stack;
        }
        return stack.substring(0, TOP_CHARS_MAX) + "\n\t…\n" + stack.substring(stack.length() - END_CHARS_MAX);
    }

    /** Whether an interrupt has led to it. */
    static boolean isByInterrupt(Throwable thrown) {
        Throwable each = thrown;
        for (int n = 0; each != null && n < CAUSES_MAX; n++) {
            boolean interrupted = each instanceof InterruptedException
                || each instanceof ClosedByInterruptException
                || each instanceof CancellationException
                || each instanceof InterruptedIOException && !(each instanceof SocketTimeoutException);
            if (interrupted) {
                return true;
            }
            each = each.getCause();
        }
        return false;
    }

    /** Whether a process should not go on after it. A stack that was too deep is whole again. */
    static boolean isFatal(Throwable thrown) {
        return thrown instanceof VirtualMachineError && !(thrown instanceof StackOverflowError);
    }
}
