// Pulls due tasks under a lease, works and acknowledges: go run consumer.go TOPIC
//
// Start as many as you like: each task goes to one of them. SIGTERM ends it after the task in work.
// DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an
// access token with the scope "consume", where delayd has tokens. Go 1.19 or later.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const pullWait = 5 // seconds that a pull waits for a task, and at most 30

// delayd refuses the call, such as 409: the lease is lost. Repeating it does not help.
var errRefused = errors.New("refused")

var (
	client = http.Client{Timeout: (pullWait + 10) * time.Second}
	server = setting("DELAYD_SERVER", "http://127.0.0.1:7799")
	lease  = seconds("LEASE", "30") // how long a task is ours, see extended()
	effort = seconds("WORK", "0")
)

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func seconds(name, otherwise string) time.Duration {
	value, err := strconv.ParseFloat(setting(name, otherwise), 64)
	if err != nil {
		log.Fatal(name, ": ", err)
	}
	return time.Duration(value * float64(time.Second))
}

type Request struct {
	Topic   string `json:"topic"`
	TaskID  int64  `json:"task_id,omitempty"`
	Receipt string `json:"receipt,omitempty"`
	Lease   string `json:"lease,omitempty"`
	Wait    int    `json:"wait,omitempty"`
}

type Task struct {
	Error   string `json:"error_msg"`
	TaskID  *int64 `json:"task_id"` // nil: nothing was due
	Receipt string `json:"receipt"`
	Content string `json:"content"`
}

// Makes one call.
func call(path string, request Request) (task Task, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return task, err
	}
	post, err := http.NewRequest(http.MethodPost, server+path, bytes.NewReader(body))
	if err != nil {
		return task, err
	}
	post.Header.Set("content-type", "application/json")
	if token := os.Getenv("DELAYD_TOKEN"); token != "" {
		post.Header.Set("authorization", "Bearer "+token)
	}
	response, err := client.Do(post)
	if err != nil {
		return task, err
	}
	defer response.Body.Close()
	status := response.StatusCode
	if err = json.NewDecoder(response.Body).Decode(&task); err != nil || status == http.StatusOK {
		return task, err
	}
	if status < 500 && status != http.StatusTooManyRequests {
		return task, fmt.Errorf("%w: %s", errRefused, task.Error)
	}
	return task, errors.New(task.Error)
}

// Repeats a call until it is answered. Acks and nacks can be repeated without harm.
func callUntilAnswered(path string, request Request) (Task, error) {
	for {
		task, err := call(path, request)
		if err == nil || errors.Is(err, errRefused) {
			return task, err
		}
		log.Println("trying again:", path, err)
		time.Sleep(time.Second)
	}
}

// Does the work. Extends the lease in the background meanwhile, three times as often as needed.
func extended(held Request, work func() error) error {
	ctx, done := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ticks := time.NewTicker(lease / 3); ; {
			select {
			case <-ctx.Done():
				ticks.Stop()
				return
			case <-ticks.C:
			}
			held.Lease = fmt.Sprint(lease.Milliseconds(), "ms")
			_, err := call("/delay/task/extend", held)
			if errors.Is(err, errRefused) { // another consumer has the task by now
				log.Println("lease lost:", err)
				return
			} else if err != nil {
				log.Println("not extended:", err)
			}
		}
	}()
	err := work()
	done()
	<-ended
	return err
}

// Your work. It may be done twice: after a crash, or when the lease was lost.
func work(content string) error {
	var order struct{ Order *int }
	if err := json.Unmarshal([]byte(content), &order); err != nil {
		return err
	}
	if order.Order == nil {
		return errors.New("no order")
	}
	time.Sleep(effort)
	fmt.Println("did", *order.Order)
	return nil
}

func main() {
	topic := os.Args[1]
	stopping, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stopping.Err() == nil {
		pull := Request{Topic: topic, Lease: fmt.Sprint(lease.Milliseconds(), "ms"), Wait: pullWait}
		task, err := callUntilAnswered("/delay/task/pull", pull)
		if err != nil {
			log.Fatal(err)
		}
		if task.TaskID == nil {
			continue
		}
		held := Request{Topic: topic, TaskID: *task.TaskID, Receipt: task.Receipt}
		settle := "/delay/task/ack"
		err = extended(held, func() error { return work(task.Content) })
		if err != nil { // the task comes again after its backoff
			log.Println("failed:", held.TaskID, err)
			settle = "/delay/task/nack"
		}
		if _, err := callUntilAnswered(settle, held); err != nil {
			log.Println(settle, held.TaskID, err)
		}
	}
}
