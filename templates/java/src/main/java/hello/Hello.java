package hello;

import ganger.worker.Outcome;
import ganger.worker.Task;
import ganger.worker.Worker;

/** A worker for ganger: it greets whoever is named in the message. */
public final class Hello {
    private Hello() { }

    static Outcome greet(Task task) {
        if (task.text().isEmpty()) {
            return Outcome.reject("nobody to greet"); // never tried again: a dead letter
        }
        return Outcome.reply("Hello, " + task.text() + "!");
    }

    public static void main(String[] args) throws Exception {
        Worker.of(Hello::greet).run();
    }
}
