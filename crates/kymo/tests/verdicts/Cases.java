// Programs with one known cause each: java Cases NAME.
import java.util.ArrayList;

class Cases {
    static volatile long sink;

    static void compute(long millis) {
        long end = System.nanoTime() + millis * 1000000;
        while (System.nanoTime() < end) for (int i = 0; i < 20000; i++) sink += i * i;
    }

    static void collect() {
        ArrayList<byte[][]> kept = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            byte[][] some = new byte[2000][];
            for (int j = 0; j < some.length; j++) some[j] = new byte[100];
            kept.add(some);
        }
        for (int i = 0; i < 8; i++) System.gc();
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "compute": compute(1500); break;
            case "sleep": Thread.sleep(1500); break;
            case "collect": collect(); break;
            case "lock":
                Object lock = new Object();
                Thread holder = new Thread(() -> {
                    synchronized (lock) { try { Thread.sleep(1500); } catch (InterruptedException e) { } }
                });
                holder.start();
                Thread.sleep(50);
                synchronized (lock) { sink++; }
                break;
        }
    }
}
