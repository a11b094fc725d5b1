import ganger.worker.Outcome;
import ganger.worker.Worker;

/** A worker that does nothing; its argument is how many tasks at once. */
class Noop {
    public static void main(String[] args) throws Exception {
        Worker.of(task -> Outcome.done()).concurrency(Integer.parseInt(args[0])).run();
    }
}
