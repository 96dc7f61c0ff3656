<?php
// Receives callbacks (PHP 8 with its sqlite extension):
// DELAYD_SECRETS=whsec_… DATABASE=receiver.db php -S 127.0.0.1:9000 receiver.php

const TOLERANCE = 300; // seconds
const MAX_BODY = 1 << 20;

function is_signed(string $body): bool
{
    $moment = $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '';
    if (!ctype_digit($moment) || abs(time() - (int) $moment) > TOLERANCE) {
        return false;
    }
    $signed = ($_SERVER['HTTP_WEBHOOK_ID'] ?? '') . ".$moment.$body"; // the received bytes
    // One secret; several, separated by spaces, while a secret is rotated.
    foreach (explode(' ', getenv('DELAYD_SECRETS')) as $secret) {
        $key = base64_decode(preg_replace('/^whsec_/', '', $secret), true);
        if (!$key) {
            // Anybody could sign with an empty key.
            throw new RuntimeException('DELAYD_SECRETS: expected secrets');
        }
        $right = 'v1,' . base64_encode(hash_hmac('sha256', $signed, $key, true));
        foreach (explode(' ', $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '') as $given) {
            if (hash_equals($right, $given)) {
                return true;
            }
        }
    }
    return false;
}

// Does the work and commits its effect together with the id. Returns false if done before.
function take(string $id, string $body): bool
{
    $options = [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION];
    $database = new PDO('sqlite:' . (getenv('DATABASE') ?: 'receiver.db'), null, null, $options);
    $columns = 'webhook_id TEXT PRIMARY KEY, at DEFAULT CURRENT_TIMESTAMP';
    $database->exec("CREATE TABLE IF NOT EXISTS done ($columns)");
    $database->exec('CREATE TABLE IF NOT EXISTS effects (body)');
    $database->beginTransaction(); // rolled back when $database goes, unless it was committed
    $new = $database->prepare('INSERT INTO done (webhook_id) VALUES (?) ON CONFLICT DO NOTHING');
    $new->execute([$id]);
    if ($new->rowCount() === 0) {
        return false;
    }
    // Your work, in the same transaction.
    $database->prepare('INSERT INTO effects (body) VALUES (?)')->execute([$body]);
    $database->commit();
    error_log("did $id");
    return true;
}

function answer(int $status, array $json): void
{
    http_response_code($status);
    header('content-type: application/json');
    echo json_encode($json);
}

$body = file_get_contents('php://input', length: MAX_BODY + 1);
try {
    if (strlen($body) > MAX_BODY) {
        answer(413, ['dm_error' => 413]);
    } elseif (!is_signed($body)) {
        answer(401, ['dm_error' => 401]);
    } else {
        $is_new = take($_SERVER['HTTP_WEBHOOK_ID'], $body);
        answer(200, $is_new ? ['dm_error' => 0] : ['dm_error' => 0, 'duplicate' => true]);
    }
} catch (Throwable $error) {
    error_log((string) $error);
    answer(500, ['dm_error' => 500]); // not done: delayd calls again
}
