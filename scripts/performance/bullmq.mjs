// Adds jobs that are all due at one moment, 64 at a time, then works them. Prints the figures as
// JSON.
import { Queue, Worker } from 'bullmq'

const [url, tasks] = [new URL(process.argv[2]), Number(process.argv[3])]
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null }
const queue = new Queue('bench', { connection })
await queue.waitUntilReady()

const data = { sn: 'bench.receiver', url: '/bench', pad: 'x'.repeat(153) }
const lead = Math.max(2000, tasks / 5)
const due = Date.now() + lead
let next = 0
const addBegan = performance.now()
await Promise.all(Array.from({ length: 64 }, async () => {
  while (next++ < tasks) {
    const delay = Math.max(1, due - Date.now())
    await queue.add('t', data, { delay, removeOnComplete: true })
  }
}))
const addSeconds = (performance.now() - addBegan) / 1000

let earliest = Infinity
const seen = new Set()
let last = 0
await new Promise((resolve, reject) => {
  const worker = new Worker('bench', async job => {
    const now = Date.now()
    if (seen.has(job.id)) reject(new Error(`job ${job.id} came twice`))
    seen.add(job.id)
    // Its own due moment: the time of its add plus its delay.
    earliest = Math.min(earliest, now - (job.timestamp + job.opts.delay))
    last = now
    if (seen.size === tasks) resolve(worker)
  }, { connection, concurrency: 256 })
  worker.on('error', reject)
})
const result = {
  adds_per_s: tasks / addSeconds,
  delivered_per_s: tasks / ((last - due) / 1000),
  earliest_ms: earliest
}
console.log(JSON.stringify(result))
process.exit(0)
