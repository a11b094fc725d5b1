import ganger.worker.Outcome;
import ganger.worker.Worker;
import java.util.Locale;

/** A first worker: it answers in capitals. */
class Shout {
    public static void main(String[] args) throws Exception {
        Worker.of(task -> Outcome.reply(task.text().toUpperCase(Locale.ROOT) + "!")).concurrency(4).run();
    }
}
