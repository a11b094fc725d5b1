package ganger.worker.testing;

import java.io.IOException;

/** The worker has left though there was something to do. */
final class EndedException extends IOException {
    private static final long serialVersionUID = 1;

    EndedException(int inHand) {
        super("the worker has left with " + inHand + " in hand");
    }
}
