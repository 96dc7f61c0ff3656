// Receives callbacks (Go 1.19 or later): DELAYD_SECRETS=whsec_… PORT=9000 go run receiver.go
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	tolerance = 5 * time.Minute
	maxBody   = 1 << 20
)

// One secret; several, separated by spaces, while a secret is rotated.
func keys() (keys [][]byte) {
	for _, secret := range strings.Fields(os.Getenv("DELAYD_SECRETS")) {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			log.Fatal("DELAYD_SECRETS: expected secrets; anybody could sign with an empty key")
		}
		keys = append(keys, key)
	}
	return keys
}

func isSigned(headers http.Header, body []byte, keys [][]byte) bool {
	moment := headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(moment, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		// body holds the received bytes, not JSON written anew.
		fmt.Fprintf(mac, "%s.%s.%s", headers.Get("webhook-id"), moment, body)
		right := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		for _, given := range strings.Fields(headers.Get("webhook-signature")) {
			if hmac.Equal([]byte(given), []byte(right)) {
				return true
			}
		}
	}
	return false
}

// Replace this by a table of your database. A map in memory is lost with the process, and several
// processes do not share it.
var (
	lock sync.Mutex
	done = map[string]bool{}
)

// Does the work. Returns false if it was done before. With a database, commit the work and the id
// in one transaction.
func take(id string, body []byte) (isNew bool, err error) {
	lock.Lock()
	defer lock.Unlock()
	if done[id] {
		return false, nil
	}
	fmt.Println("did", id) // your work; if it fails, return its error before the next line
	done[id] = true
	return true, nil
}

func main() {
	keys := keys()
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer := func(status int, text string) {
			w.Header().Set("content-type", "application/json")
			w.WriteHeader(status)
			io.WriteString(w, text)
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			answer(413, `{"dm_error":413}`)
			return
		}
		if !isSigned(r.Header, body, keys) {
			answer(401, `{"dm_error":401}`)
			return
		}
		switch isNew, err := take(r.Header.Get("webhook-id"), body); {
		case err != nil:
			log.Print(err)
			answer(500, `{"dm_error":500}`) // not done: delayd calls again
		case isNew:
			answer(200, `{"dm_error":0}`)
		default:
			answer(200, `{"dm_error":0,"duplicate":true}`)
		}
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listens on port", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, nil))
}
