package ganger.worker;

/** What a handler gives can't be sent as it is. */
final class UnsendableException extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    UnsendableException(String message) {
        super(message);
    }
}
