// Adds a task, once, whatever happens on the way: go run producer.go ORDER   (Go 1.19 or later)
//
// DELAYD_SERVER is the address of delayd (http://127.0.0.1:7799 by default). DELAYD_TOKEN is an
// access token with the scope "produce", where delayd has tokens.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	attemptTimeout = 5 * time.Second
	totalTimeout   = 60 * time.Second // for all attempts together
)

var (
	// delayd refuses the task. Sending it again does not help.
	errRefused = errors.New("refused")
	// No attempt was confirmed. The task may be stored or not.
	errUnconfirmed = errors.New("unconfirmed")

	client = http.Client{Timeout: attemptTimeout}
	random = rand.New(rand.NewSource(time.Now().UnixNano()))
)

type Task struct {
	Topic          string `json:"topic"`
	IdempotencyKey string `json:"idempotency_key"` // without it, a repeated add may store two tasks
	Delay          string `json:"delay"`
	Mode           string `json:"mode"`
	Content        any    `json:"content"`
}

type Answer struct {
	Error     string `json:"error_msg"`
	TaskID    int64  `json:"task_id"`
	Duplicate bool   `json:"duplicate"`
}

// Sends one request. retryAfter is the wait that delayd asks for.
func post(path string, body []byte) (
	status int, retryAfter time.Duration, answer Answer, err error,
) {
	server := os.Getenv("DELAYD_SERVER")
	if server == "" {
		server = "http://127.0.0.1:7799"
	}
	request, err := http.NewRequest(http.MethodPost, server+path, bytes.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("content-type", "application/json")
	if token := os.Getenv("DELAYD_TOKEN"); token != "" {
		request.Header.Set("authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	seconds, _ := strconv.Atoi(response.Header.Get("retry-after"))
	err = json.NewDecoder(response.Body).Decode(&answer)
	return response.StatusCode, time.Duration(seconds) * time.Second, answer, err
}

// Adds the task. Repeats the request until it is confirmed, and returns the answer.
func add(task Task) (Answer, error) {
	// The body is built once: a repeated add must ask for exactly the same.
	body, err := json.Marshal(task)
	if err != nil {
		return Answer{}, err
	}
	deadline := time.Now().Add(totalTimeout)
	for backoff := 100 * time.Millisecond; ; backoff *= 2 {
		status, retryAfter, answer, err := post("/delay/task/add", body)
		switch {
		case err == nil && status == http.StatusOK:
			return answer, nil
		case err == nil && status < 500 && status != http.StatusTooManyRequests:
			// 400: a wrong field; 401, 403: the token; …
			return answer, fmt.Errorf("%w: %s", errRefused, answer.Error)
		case err == nil:
			err = errors.New(answer.Error)
		}
		if backoff > 5*time.Second {
			backoff = 5 * time.Second
		}
		// The random part keeps clients that failed together from coming back together.
		wait := backoff/2 + time.Duration(random.Int63n(int64(backoff/2)))
		if wait < retryAfter {
			wait = retryAfter
		}
		if time.Now().Add(wait).After(deadline) {
			return Answer{}, fmt.Errorf("%w: %v", errUnconfirmed, err)
		}
		log.Println("trying again:", err)
		time.Sleep(wait)
	}
}

func main() {
	order, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	answer, err := add(Task{
		Topic: "order.cancel",
		// From your data, so that a restarted producer repeats it.
		IdempotencyKey: fmt.Sprint("order-", order),
		Delay:          "30m",
		Mode:           "pull",
		Content:        map[string]int{"order": order},
	})
	if err != nil {
		log.Fatal(err)
	}
	how := "is new"
	if answer.Duplicate {
		how = "was known"
	}
	fmt.Println("task", answer.TaskID, how)
}
