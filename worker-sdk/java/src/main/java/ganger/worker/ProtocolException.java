package ganger.worker;

import java.io.IOException;

/** The daemon, or what pretends to be one, has sent something against the protocol. */
public final class ProtocolException extends IOException {
    private static final long serialVersionUID = 1;

    ProtocolException(String message) {
        super(message);
    }
}
